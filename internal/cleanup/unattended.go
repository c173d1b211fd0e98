package cleanup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A publisher may write to an outbox that no forwarder drains, because the two names differ. Or
// messages may be stored in a queue without a subscriber. In both cases no forwarder or subscriber
// exists that could log the problem. So every 20 s the cleaner looks for spools that have waiting
// messages and no member.

const (
	// UnattendedAfter is how long messages wait for a drainer before that is logged.
	// unattendedPause is the time between two searches. A drainer that is restarted within this
	// time is not reported, and the two together are a minute.
	UnattendedAfter = 30 * time.Second
	unattendedPause = 30 * time.Second
)

var (
	errUnattended = errors.New("no process reads these messages")
	errNoSpool    = errors.New("no such spool is registered")
)

// watch is the search for messages that no process will handle.
type watch struct {
	after time.Duration
	begun bool           // the forwarder beside this cleaner has had time to join the members
	spool int64          // the last spool of this round
	told  map[int64]bool // spools that have been logged
	still map[int64]bool // spools found in this round
}

func newWatch(after time.Duration) *watch {
	return &watch{after: after, told: map[int64]bool{}, still: map[int64]bool{}}
}

// work checks the next spool. There is no pause within a round.
func (w *watch) work(ctx context.Context, c *Cleaner, _ *task) (removed int, pause time.Duration, err error) {
	if !w.begun {
		w.begun = true
		return 0, min(unattendedPause, c.config.Interval), nil
	}
	var id sql.NullInt64
	var name sql.NullString
	var unattended bool
	next := c.statements.NextWaiting(w.spool, w.after.Microseconds())
	err = c.db.QueryRowContext(ctx, next.Text, next.Args...).Scan(&id, &name, &unattended)
	switch {
	case err != nil:
		return 0, 0, AsLeft(err, c.statements)
	case !id.Valid:
		w.spool, w.told, w.still = 0, w.still, map[int64]bool{}
		return 0, min(unattendedPause, c.config.Interval), nil
	}
	w.spool = id.Int64
	if unattended {
		if w.still[id.Int64] = true; !w.told[id.Int64] {
			w.tell(c, id.Int64, name)
		}
	}
	return 0, 0, nil
}

func (w *watch) tell(c *Cleaner, id int64, name sql.NullString) {
	waited := "for more than " + w.after.String()
	queue, isQueue := strings.CutPrefix(name.String, spool.QueuePrefix)
	switch {
	case !name.Valid:
		messages, spools := c.statements.Names.Table("messages"), c.statements.Names.Table("spools")
		c.logger.Error("Postbox has messages of an outbox or a queue that does not exist, and no process will read them: its row was deleted, or the database went "+
			"back to an earlier state while a process wrote to it. Restart the processes that write messages, and then move these: "+
			fmt.Sprintf("UPDATE %s SET spool = (SELECT id FROM %s WHERE name = '…') WHERE spool = %d", messages, spools, id),
			errNoSpool, watermill.LogFields{"spool": id})
	case isQueue:
		c.logger.Error("Postbox has messages in a queue, "+waited+", which are not handled: no process has subscribed to the queue. "+
			"Subscribe to it with a queue.Subscriber or run a queue.Batch, or correct the name of the queue where messages are deferred",
			errUnattended, watermill.LogFields{"queue": queue})
	default:
		c.logger.Error("Postbox has messages in an outbox, "+waited+", which are not published: no forwarder of this outbox runs. "+
			"Run one with its name in forwarder.Config.Outbox, or set PublisherConfig.Outbox to the outbox that your forwarder has",
			errUnattended, watermill.LogFields{"outbox": name.String})
	}
}
