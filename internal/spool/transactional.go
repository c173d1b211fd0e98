package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// ErrLost is returned if this drainer may no longer settle a message: another process has its lane,
// or has settled it.
var ErrLost = errors.New("the lease of the message's lane was lost, or another process has settled the message")

// Settle removes messages in the transaction in which their handler has written, as its last
// statement. If all are removed, the commit of the transaction marks them as done. Otherwise the
// error is [ErrLost] and the transaction must be rolled back. The messages must belong to one
// spool, and must not be handled any more. Settle may wait for the lock of another transaction. On
// MariaDB the wait is a conflict after a second; on other databases the caller bounds it, see
// drain.LockPatience.
func Settle(ctx context.Context, tx *sql.Tx, exec Exec, messages []*Message) error {
	if len(messages) == 0 {
		return nil
	}
	spool := messages[0].Spool
	refs := refsOfMessages(messages)
	var removed int64
	var err error
	exec = spool.Impatiently(exec)
	if messages[0].Keep {
		removed, err = spool.KeepAndRemove(ctx, tx, exec, refs, nil)
	} else {
		removed, err = Affected(exec(ctx, tx, spool.Statements.Remove(spool.ID(), refs)))
	}
	if err != nil {
		return fmt.Errorf("settle messages of spool %q: %w", spool.name, err)
	}
	if int(removed) < len(refs) {
		return ErrLost
	}
	return nil
}

// NoticesEnd reports whether [Settle] removes none of the messages if the transaction has ended
// without the driver's knowledge. MySQL ends a transaction in a deadlock, and a statement cannot
// detect that there: it would still remove the messages, in a transaction of its own. The messages
// must belong to one spool.
func NoticesEnd(messages []*Message) bool { return len(messages) > 0 && messages[0].NoticesEnd }

func refsOfMessages(messages []*Message) []dialect.Ref {
	refs := make([]dialect.Ref, len(messages))
	for i, m := range messages {
		refs[i] = m.Handled()
	}
	return refs
}

// Hold keeps other processes from taking the lanes of messages until the transaction ends, however
// long their handlers take. It is for pools with a single connection, in which no other connection
// can renew the leases meanwhile. It is the first statement of the transaction. The error is
// [ErrLost] if a lane already has another holder. The messages must belong to one spool.
func Hold(ctx context.Context, tx *sql.Tx, messages []*Message) error {
	held := map[int]bool{}
	for _, m := range messages {
		if m.Spool.Statements.LocksRows() && !held[m.Ref.Lane] {
			held[m.Ref.Lane] = true
			hold := m.Spool.Statements.HoldLane(dialect.HeldLane{Spool: m.Spool.ID(), Lane: m.Ref.Lane, Token: m.Ref.Token})
			var one int
			err := tx.QueryRowContext(ctx, hold.Text, hold.Args...).Scan(&one)
			if errors.Is(err, sql.ErrNoRows) {
				return ErrLost
			}
			if err != nil {
				return fmt.Errorf("hold lane %d of spool %q: %w", m.Ref.Lane, m.Spool.name, err)
			}
		}
	}
	return nil
}

// KeepAndRemove moves messages to the history. Some may be there already, because their removal was
// lost in a failover. An entry with the same id and the same time is the same message, which is
// only removed.
//
// If a lane is lost between the two statements, its messages are kept and not removed. If they died
// later, they would be both done and dead. So if some are kept and not all are removed, the error
// is [ErrLost], and the caller rolls back and tries them in smaller parts. Comparing the two
// numbers is not enough: messages that were in the history before are removed and not kept.
func (s *Spool) KeepAndRemove(ctx context.Context, tx *sql.Tx, exec Exec, refs []dialect.Ref, seen *dialect.Seen) (int64, error) {
	kept, err := Affected(exec(ctx, tx, s.Statements.Keep(s.ID(), refs)))
	if err != nil {
		return 0, err
	}
	removed, err := Affected(exec(ctx, tx, s.Statements.RemoveWhere(s.ID(), refs, seen)))
	if err == nil && kept > 0 && int(removed) < len(refs) {
		err = ErrLost
	}
	return removed, err
}
