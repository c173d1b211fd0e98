package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Minutes is what all processes together did with an outbox or a queue in a span of time: see
// package minutes, which writes it.
type Minutes struct {
	From time.Time
	// Stored, Done, Failed and Dead count messages: written, handled, failed and to be tried again,
	// and those that became dead letters or wait for an operator.
	Stored, Done, Failed, Dead int64
	// WaitMedian is how long messages waited until they were done, and CallMedian how long calls of
	// publishers or handlers took: the medians of each process and minute, on average over the
	// messages. WaitSlow and CallSlow are the largest of the 95th percentiles.
	WaitMedian, WaitSlow, CallMedian, CallSlow time.Duration
	// Started is how many processes wrote their first row.
	Started int
}

// mostParts bounds what one call returns.
const mostParts = 2000

// Minutes returns what was done in each part of a time, without those in which nothing was. Each
// part is a minute long or more. The result is empty if no process writes its minutes.
func (a *Admin) Minutes(ctx context.Context, target Target, since, until time.Time, each time.Duration) (parts []Minutes, err error) {
	from, to, step := since.Unix()/60, until.Unix()/60, int64(each/time.Minute)
	if step < 1 || to <= from || (to-from)/step > mostParts {
		return nil, fmt.Errorf("%w: minutes from %s to %s by %s: name a span of time, of at most %d parts of a minute or more", ErrInvalid, since, until, each, mostParts)
	}
	query := dialect.Query{Text: a.statements.Text(minutesText), Args: []any{from, step, target.Kind, target.Name, from, to}}
	err = spool.Each(ctx, a.db, query, func(scan spool.Scan) error {
		var m Minutes
		var minute, waits, waitSlow, calls, callSlow int64
		err := scan(&minute, &m.Stored, &m.Done, &m.Failed, &m.Dead, &waits, &waitSlow, &calls, &callSlow, &m.Started)
		m.From = time.Unix(minute*60, 0).UTC()
		m.WaitSlow, m.CallSlow = time.Duration(waitSlow)*time.Microsecond, time.Duration(callSlow)*time.Microsecond
		m.WaitMedian = time.Duration(waits) * time.Microsecond / time.Duration(max(m.Done, 1))
		m.CallMedian = time.Duration(calls) * time.Microsecond / time.Duration(max(m.Done+m.Failed+m.Dead, 1))
		parts = append(parts, m)
		return err
	})
	if err != nil {
		return nil, failed(err)
	}
	return parts, nil
}

// minutesText adds up the rows of each part: it reads a range of the primary key.
const minutesText = `
SELECT part, SUM(arrived), SUM(done), SUM(failed), SUM(dead), SUM(wait_p50 * done), MAX(wait_p95), SUM(call_p50 * (done + failed + dead)), MAX(call_p95), SUM(starts)
FROM (SELECT m.*, minute - (minute - ?) % ? AS part FROM {minutes} m WHERE kind = ? AND name = ? AND minute >= ? AND minute < ?) m
GROUP BY part
ORDER BY part`
