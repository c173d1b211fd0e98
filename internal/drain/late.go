package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// late are the open transactions that have written messages below the watermark, each with the place from which on its messages
// may stand. Reads go on beyond. When a read's snapshot shows that one of them has ended, that read may have met a
// message that was written after the late ones were committed, and has not met the late ones: it is thrown away, and
// the lanes go back to the place.
type late struct {
	places map[int64]int64 // by transaction
	// patience is how long a mark waits for transactions that have written. It grows where many of them last longer, since
	// each that is watched costs a read.
	patience time.Duration
	backAt   time.Time // the last time that lanes went back
}

// latePatience is the least patience, lateMost the greatest. Lanes go back once in so many times the patience, or it grows.
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

// watch adds transactions whose messages may stand beyond the place.
func (l *late) watch(transactions []int64, place int64) {
	if l.places == nil {
		l.places = map[int64]int64{}
	}
	for _, transaction := range transactions {
		l.places[transaction] = place
	}
}

// ended forgets the watched transactions that do not run any more, and returns the lowest of their places.
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

// goBack takes lanes back where a late transaction has ended. It reports true for a read that began beyond its messages.
func (d *Drainer) goBack(params dialect.FetchParams, found *page) bool {
	place, some := d.watermark.late.ended(found.running, time.Now())
	if !some {
		return false
	}
	for _, l := range d.lanes.held {
		l.lower(place + 1)
	}
	d.pollAt = time.Time{}
	return slices.ContainsFunc(params.Cursors, func(c dialect.Cursor) bool { return c.After > place })
}

// findWriters asks which transactions have written messages, when a mark waits for that. An error holds up nothing: the mark
// stays pending, and the read that follows will tell if the database is away.
func (d *Drainer) findWriters(ctx context.Context) {
	statements, started := d.spool.Statements, time.Now()
	if statements.Writers+statements.FreeWriters == "" || !d.watermark.wantsWriters(started) {
		return
	}
	var err error
	var writers map[uint32]bool
	var free map[int64]bool
	if statements.Writers != "" {
		writers, err = numbers[uint32](ctx, d, statements.Writers)
	} else {
		free, err = numbers[int64](ctx, d, statements.FreeWriters)
	}
	now := time.Now()
	took := now.Sub(started)
	switch {
	case err != nil:
		d.watermark.asked(now, took)
		d.logger.Debug("Postbox could not ask which transactions have written: "+err.Error(), nil)
	case statements.Writers != "":
		d.watermark.answer(writers, now, took)
	default:
		d.watermark.answerFree(free, dialect.WriterGroups, now, took)
	}
}

// numbers returns the numbers that a statement selects.
func numbers[N uint32 | int64](ctx context.Context, d *Drainer, text string) (map[N]bool, error) {
	rows, err := d.prepared.Query(ctx, d.db, dialect.Query{Text: text})
	if err != nil {
		return nil, fmt.Errorf("read locks: %w", err)
	}
	defer func() { _ = rows.Close() }()
	found := map[N]bool{}
	for rows.Next() {
		var number N
		if err := rows.Scan(&number); err != nil {
			return nil, fmt.Errorf("read locks: %w", err)
		}
		found[number] = true
	}
	return found, rows.Err()
}
