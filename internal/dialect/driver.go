package dialect

import (
	"database/sql"

	"github.com/lib/pq"
)

// WatchesTransactions tells whether the driver interrupts whatever runs in a transaction when the context ends with which
// that began. Then a statement of it need not bring the context along: to watch that once more would cost a goroutine a
// statement. Of the drivers that Postbox is tested with, only lib/pq watches.
func WatchesTransactions(db *sql.DB) bool {
	_, watches := db.Driver().(*pq.Driver)
	return watches
}
