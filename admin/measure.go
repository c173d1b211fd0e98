package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// Measure counts what the database has of each outbox and queue, and gives the numbers to a
// recorder: those instruments of package metrics whose field Database is true. The recorders in
// metrics/prommetrics and metrics/otelmetrics call it when they are asked for values.
//
// Measure reads what [Admin.Queues] reads, which does not depend on the number of messages. It
// needs one connection, and the rights of the role operator to read: see docs/security.md.
//
// If the database does not answer before ctx ends, Measure records that the database is not up, and
// returns an error. It returns in time even where the driver does not. Up to four calls wait for a
// database that hangs; further ones return an error at once. Measure is safe for concurrent use.
func (a *Admin) Measure(ctx context.Context, recorder metrics.Recorder) error {
	queues, err := a.countInTime(ctx)
	recorder.Record(instruments.DatabaseUp, number(err == nil))
	if err != nil {
		return err
	}
	for _, q := range queues {
		if q.Target.Kind == spool.KindInbox {
			recorder.Record(instruments.InboxDeadLetters, float64(q.Dead), q.Target.Name)
		} else {
			record(recorder, q)
		}
	}
	return nil
}

func record(recorder metrics.Recorder, q QueueInfo) {
	kind, name := q.Target.Kind, q.Target.Name
	for state, messages := range map[string]int{"pending": q.Pending, "due": q.Due, "failing": q.Failing, "parked": q.Parked, "in_flight": q.InFlight} {
		recorder.Record(instruments.Backlog, float64(messages), kind, name, state)
	}
	recorder.Record(instruments.BacklogAge, q.DueAge.Seconds(), kind, name)
	recorder.Record(instruments.CallAge, callAge(q), kind, name)
	recorder.Record(instruments.DeadLetters, float64(q.Dead), kind, name)
	recorder.Record(instruments.Processes, float64(q.Processes), kind, name)
	recorder.Record(instruments.Paused, number(!q.Pause.Since.IsZero()), kind, name)
	recorder.Record(instruments.PausedKeys, float64(q.PausedKeys), kind, name)
	recorder.Record(instruments.PausedTopics, float64(q.PausedTopics), kind, name)
	recorder.Record(instruments.StuckKeys, float64(q.StuckKeys), kind, name)
	recorder.Record(instruments.StuckAge, q.StuckAge.Seconds(), kind, name)
}

// callAge returns for how long a call has not returned, in seconds.
func callAge(q QueueInfo) float64 {
	if q.LongCall == nil {
		return 0
	}
	return max(0, time.Since(q.LongCall.Since).Seconds())
}

// maxCounts is the number of calls of Measure that may count at a time. It bounds what a database
// that hangs can hold.
const maxCounts = 4

var errCounting = errors.New("earlier calls still wait for the database")

// countInTime returns when ctx ends, whatever the driver does.
func (a *Admin) countInTime(ctx context.Context) (queues []QueueInfo, err error) {
	if a.counting.Add(1) > maxCounts {
		a.counting.Add(-1)
		return nil, fmt.Errorf("admin: count messages: %w", errCounting)
	}
	ended, found := make(chan error, 1), []QueueInfo(nil)
	go func() {
		defer a.counting.Add(-1)
		var err error
		found, err = a.Queues(ctx)
		ended <- err
	}()
	select {
	case err := <-ended:
		return found, err
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
