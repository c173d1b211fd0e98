package dialect

import (
	"database/sql"

	"github.com/lib/pq"
)

// WatchesTransactions tells whether the driver watches the context that a transaction began with, and interrupts whatever
// runs in it when that context ends. Then a statement need not bring the same context along, which would cost a goroutine.
// Of the drivers that Postbox is tested with, only lib/pq watches.
func WatchesTransactions(db *sql.DB) bool {
	_, watches := db.Driver().(*pq.Driver)
	return watches
}
