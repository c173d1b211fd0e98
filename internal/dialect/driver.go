package dialect

import (
	"database/sql"

	"github.com/lib/pq"
)

// WatchesTransactions tells whether the driver interrupts whatever runs in a transaction when the context ends that this
// began with. Then a statement of that transaction need not bring the context along: to watch it once more
// would cost a goroutine for each statement. Of the drivers that Postbox is tested with, only lib/pq watches.
func WatchesTransactions(db *sql.DB) bool {
	_, watches := db.Driver().(*pq.Driver)
	return watches
}
