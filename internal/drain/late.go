package drain

import (
	"context"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// late holds the open transactions that have written messages below the watermark. For each it
// holds the place after which its messages may be. Reads continue beyond that place. If a read's
// snapshot shows that a late transaction has ended, that read may contain a message that was
// written after the transaction's commit, but not the transaction's own messages. So the read is
// thrown away, and the lanes go back to the place.
type late struct {
	places map[int64]int64 // place, by transaction
	// patience is how long a mark waits for transactions that have written. It grows if many
	// transactions last longer, since each watched transaction costs a read.
	patience time.Duration
	backAt   time.Time // time of the last return of the lanes to a place
}

// latePatience is the minimum of the patience, lateMost the maximum. If lanes go back more often
// than once in lateShare times the patience, the patience grows.
const (
	latePatience = 250 * time.Millisecond
	lateMost     = 30 * time.Second
	lateShare    = 10
)

func (l *late) waits() time.Duration { return max(l.patience, latePatience) }

func (l *late) watches(transaction int64) bool {
	_, watched := l.places[transaction]
	return watched
}

// watch adds transactions whose messages may be beyond the place.
func (l *late) watch(transactions []int64, place int64) {
	if l.places == nil {
		l.places = map[int64]int64{}
	}
	for _, transaction := range transactions {
		l.places[transaction] = place
	}
}

// ended removes the watched transactions that are no longer running, and returns the lowest of
// their places.
func (l *late) ended(running []int64, now time.Time) (place int64, some bool) {
	for transaction, from := range l.places {
		if slices.Contains(running, transaction) {
			continue
		}
		if delete(l.places, transaction); !some || from < place {
			place, some = from, true
		}
	}
	if some {
		often := now.Sub(l.backAt) < lateShare*l.waits()
		if l.backAt = now; often {
			l.patience = min(2*l.waits(), lateMost)
		} else {
			l.patience = l.waits() / 2
		}
	}
	return place, some
}

// rereadLate moves lanes back if a late transaction has ended. It reports true for a read that
// began beyond the messages of that transaction.
func (r *reader) rereadLate(params dialect.FetchParams, found *page) bool {
	place, some := r.watermark.late.ended(found.running, time.Now())
	if !some {
		return false
	}
	for _, l := range r.lanes.held {
		l.lower(place + 1)
	}
	r.pace.now()
	return slices.ContainsFunc(params.Cursors, func(c dialect.Cursor) bool { return c.After > place })
}

// findWriters asks which transactions have written messages, if a mark waits for the answer. An
// error does no harm: the mark stays pending, and the read that follows will report an unavailable
// database.
func (r *reader) findWriters(ctx context.Context) {
	statements, started := r.spool.Statements, time.Now()
	if statements.Writers+statements.FreeWriters == "" || !r.watermark.wantsWriters(started) {
		return
	}
	var err error
	var writers map[uint32]bool
	var free map[int64]bool
	if statements.Writers != "" {
		writers, err = numbers[uint32](ctx, r.core, statements.Writers)
	} else {
		free, err = numbers[int64](ctx, r.core, statements.FreeWriters)
	}
	now := time.Now()
	took := now.Sub(started)
	switch {
	case err != nil:
		r.watermark.asked(now, took)
		r.logger.Debug("Postbox could not read which transactions have written: "+err.Error(), nil)
	case statements.Writers != "":
		r.watermark.answer(writers, now, took)
	default:
		r.watermark.answerFree(free, dialect.WriterGroups, now, took)
	}
}

// numbers returns the numbers that a statement selects.
func numbers[N uint32 | int64](ctx context.Context, c *core, text string) (map[N]bool, error) {
	found := map[N]bool{}
	err := c.prepared.Each(ctx, c.db, dialect.Query{Text: text}, func(scan spool.Scan) error {
		var number N
		err := scan(&number)
		found[number] = true
		return err
	})
	return found, err
}
