package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/operate"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// Measure counts what the database has of each outbox and queue, and gives the numbers to a recorder: those instruments of package metrics
// whose field Database is true. The recorders in metrics/prommetrics and metrics/otelmetrics call it when they are asked for values.
//
// Measure reads an index entry, or a row, of each pending message and each dead letter, and nothing of the history. It needs one connection, and the rights of
// the role operator to read: see docs/security.md.
//
// If the database does not answer before ctx ends, Measure records that the database is not up, and returns an error. It returns in time even
// where the driver does not. Up to four calls wait for a database that hangs; further ones return an error at once. Measure is safe for concurrent use.
func (a *Admin) Measure(ctx context.Context, recorder metrics.Recorder) error {
	spools, err := a.backlogsInTime(ctx)
	recorder.Record(metrics.DatabaseUp, number(err == nil))
	if err != nil {
		return err
	}
	for _, q := range spools {
		kind, name := spool.Named(q.Name)
		for state, messages := range map[string]int{"pending": q.Pending, "due": q.Due, "failing": q.Failing, "parked": q.Parked, "in_flight": q.InFlight} {
			recorder.Record(metrics.Backlog, float64(messages), kind, name, state)
		}
		recorder.Record(metrics.BacklogAge, q.OldestAge.Seconds(), kind, name)
		recorder.Record(metrics.DeadLetters, float64(q.Dead), kind, name)
		recorder.Record(metrics.Processes, float64(q.Members), kind, name)
		recorder.Record(metrics.Lanes, float64(q.Lanes), kind, name)
		recorder.Record(metrics.Paused, number(!q.PausedSince.IsZero()), kind, name)
		recorder.Record(metrics.PausedKeys, float64(q.PausedKeys), kind, name)
		recorder.Record(metrics.PausedTopics, float64(q.PausedTopics), kind, name)
		recorder.Record(metrics.StuckKeys, float64(q.StuckKeys), kind, name)
		recorder.Record(metrics.StuckAge, q.StuckAge.Seconds(), kind, name)
	}
	return nil
}

// maxCounts is the number of calls of Measure that may count at a time. It bounds what a database that hangs can hold.
const maxCounts = 4

var errCounting = errors.New("earlier calls still wait for the database")

// backlogsInTime returns when ctx ends, whatever the driver does.
func (a *Admin) backlogsInTime(ctx context.Context) ([]*operate.Overview, error) {
	if a.counting.Add(1) > maxCounts {
		a.counting.Add(-1)
		return nil, fmt.Errorf("admin: count messages: %w", errCounting)
	}
	type counted struct {
		spools []*operate.Overview
		err    error
	}
	ended := make(chan counted, 1)
	go func() {
		defer a.counting.Add(-1)
		spools, err := a.operator.Backlogs(ctx)
		if err != nil {
			err = failed(err)
		}
		ended <- counted{spools, err}
	}()
	select {
	case c := <-ended:
		return c.spools, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("admin: count messages: %w", ctx.Err())
	}
}

// number returns 1 for true and 0 for false.
func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
