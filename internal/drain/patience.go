package drain

import (
	"context"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// LockPatience is how long a removal that has not locked its rows may take before it finds out
// which of them are locked. It also bounds the removal in the transaction of a handler.
//
// A MariaDB server ends a wait for a lock after a second, see dialect.Statements.Impatient, so
// there a removal may take long. No other server reports that a statement waits for a lock, so
// there a statement that is slow for another reason is given up, too. On PostgreSQL the removal is
// done a second time, and the next one is half as large. MySQL would continue with it until
// innodb_lock_wait_timeout, and keep the rows of lanes locked, so that no lease is renewed. So
// there each removal locks its rows first, and waits for none. In the transaction of a handler, on
// each of the three, the handler runs again.
const LockPatience = 2 * time.Second

// mostPatience leaves time for the second try of a removal.
const mostPatience = spool.StatementTimeout / 2

// learnServer asks whether the server ends a statement that waits for a lock, and whether it
// reports to a removal that its transaction has ended.
func (d *Drainer) learnServer(ctx context.Context) error {
	text := d.spool.Statements.IsMariaDB
	if text == "" {
		d.reader.noticesEnd = true
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, spool.StatementTimeout)
	defer cancel()
	var mariaDB bool
	if err := d.db.QueryRowContext(ctx, text).Scan(&mariaDB); err != nil {
		return fmt.Errorf("read the features of the server of spool %q: %w", d.spool.Name(), err)
	}
	d.reader.noticesEnd, d.settle.lockFirst = mariaDB, !mariaDB
	if mariaDB {
		d.settle.patience = mostPatience
	}
	return nil
}
