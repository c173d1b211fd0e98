package forwarder

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// group is a transaction that members of a [GroupCommit] use one after the other, each in its own goroutine and in its
// slot. Only the member in its slot uses the group, so there is no lock.
type group struct {
	commits *GroupCommit
	conn    *sql.Conn
	tx      *sql.Tx
	mark    int32     // 0 until it is set, see setMark
	slots   int       // still to be given
	waiting []*member // for the commit
	broken  error     // the reason why the transaction cannot be written to any more
}

// savepoint begins a slot.
const savepoint = "postbox_group"

// run uses the slot of a member: it runs fn, and gives the next member a slot. If waits is true, the outcome of the group is sent to me later.
func (g *group) run(ctx context.Context, scope *txscope.Scope, me *member, fn func(ctx context.Context, tx *sql.Tx) error) (waits bool, err error) {
	live := context.WithoutCancel(ctx) // a statement that is interrupted rolls back the whole transaction
	defer g.handOn(live)               // also when fn panics
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("begin transaction: %w", err)
	}
	set, rollback, release := dialect.Savepoint(savepoint)
	if !g.setMark(live) || !g.exec(live, set) {
		me.ended <- outcome{again: true} // fn has not run here, and will run by itself
		return true, nil
	}
	done := false
	defer func() {
		if outlived := scope.Return(); outlived != nil { // the others of the group run again, each by itself: this transaction has been rolled back
			g.broken = outlived
		} else if !done {
			_ = g.exec(live, rollback) && g.exec(live, release)
		}
	}()
	if err := fn(ctx, g.tx); err != nil {
		return false, err
	}
	if err := scope.Return(); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("commit: %w", err)
	}
	done = true
	if !g.exec(live, release) {
		// fn ignored that its transaction had ended. Its statements after that may be committed, so it must not run again. If the savepoint still exists, so does the transaction.
		err := g.broken
		if _, backErr := g.tx.ExecContext(live, rollback); isGone(backErr) {
			err = spool.Ended(err)
		}
		return false, fmt.Errorf("commit: %w", err)
	}
	g.waiting = append(g.waiting, me)
	return true, nil
}

// exec executes a statement about a savepoint. If that fails, there is no transaction any more, or a member has left a writing statement open; the group
// is then broken.
func (g *group) exec(ctx context.Context, statement string) bool {
	_, g.broken = g.tx.ExecContext(ctx, statement)
	return g.broken == nil
}

// handOn gives the next member in the queue a slot, or ends the group.
func (g *group) handOn(ctx context.Context) {
	if g.broken == nil && g.slots > 0 {
		g.slots-- // before another member has the group
		if g.commits.giveSlot(g) {
			return
		}
	}
	end := g.end(ctx)
	_ = g.conn.Close() // an AfterCommit hook may need a connection, and this may be the only one
	g.commits.next()
	for _, m := range g.waiting {
		m.ended <- end
	}
}

// end commits, if there are writes to commit. If a member has ended the transaction and it was committed, the other members must not run again.
func (g *group) end(ctx context.Context) outcome {
	if g.broken != nil {
		_, _ = g.tx.ExecContext(ctx, "ROLLBACK") // fails where there is no transaction any more; while there is one, it would show its own mark
		committed, err := g.committed(ctx)
		_ = g.tx.Rollback()
		if err != nil {
			return outcome{err: fmt.Errorf("%w: a function of the group has ended the transaction: %w", postbox.ErrCommitUnknown, err)}
		}
		return outcome{again: !committed}
	}
	if len(g.waiting) == 0 {
		_ = g.tx.Rollback()
		return outcome{}
	}
	err := spool.Commit(ctx, g.conn, g.tx)
	if err == nil {
		return outcome{}
	}
	certain := !errors.Is(err, postbox.ErrCommitUnknown)
	return outcome{again: certain && len(g.waiting) > 1, err: fmt.Errorf("commit: %w", err)}
}

// setMark writes a number into the transaction as soon as other members could be affected. The number is there after a commit, and not after a rollback. It
// belongs to the connection, so it costs no wait for the disk, and no other connection sees it.
func (g *group) setMark(ctx context.Context) bool {
	if g.mark != 0 || len(g.waiting) == 0 {
		return true
	}
	g.mark = 1 + rand.Int32N(math.MaxInt32) //nolint:gosec // it need not be a secret
	return g.exec(ctx, dialect.SetMark(g.mark))
}

// committed says whether a transaction that has ended was committed: a function can execute COMMIT, and SQLite rolls back by itself when a statement is
// interrupted. It asks through the transaction unless Commit or Rollback was called, since a lost connection is closed when its transaction has ended.
func (g *group) committed(ctx context.Context) (bool, error) {
	if g.mark == 0 { // no other member waits
		return false, nil
	}
	var mark int32
	err := g.tx.QueryRowContext(ctx, dialect.Mark).Scan(&mark)
	if errors.Is(err, sql.ErrTxDone) {
		err = g.conn.QueryRowContext(ctx, dialect.Mark).Scan(&mark)
	}
	return mark == g.mark, err
}
