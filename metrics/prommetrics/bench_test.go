package prommetrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/metrics/prommetrics"
)

// settled is the number of messages that a settlement records.
const settled = 100

// events are what a forwarder reports of a settlement and of a call of the publisher, and an inbox
// of a message.
func events(recorder metrics.Recorder) map[string]func() {
	outbox, now := meter.Of(recorder, "outbox", watermill.NopLogger{}), time.Now()
	inboxes := meter.OfInboxes(recorder, watermill.NopLogger{})
	msg := &spool.Message{Topic: "orders", CreatedAt: now.Add(-time.Millisecond)}
	return map[string]func(){
		"settled": func() {
			tally := outbox.Tally(now)
			for range settled {
				tally.Ended(msg, meter.Done)
			}
			tally.Report()
		},
		"called":    func() { outbox.Called("orders", 1, time.Millisecond, true) },
		"delivered": func() { inboxes.Delivered("billing", "orders", meter.Handled, true, nil) },
	}
}

// It counts the allocations of the process, so it does not run in parallel.
func TestRecorder_allocates_nothing_for_each_message(t *testing.T) {
	recorder, _ := newRecorder(t, describe(testdb.SQLite(t)), prommetrics.Config{ProcessOnly: true})
	reported := events(recorder)
	require.LessOrEqual(t, testing.AllocsPerRun(100, reported["settled"]), 1.0)
	require.Zero(t, testing.AllocsPerRun(100, reported["called"]))
	require.Zero(t, testing.AllocsPerRun(100, reported["delivered"]))
}

// "settled" is for a hundred messages. "labels" gives the labels with each measurement, as to a
// recorder that cannot look series up.
func BenchmarkRecorder(b *testing.B) {
	database := testdb.SQLiteBenchmark(b)
	recorder, err := prommetrics.New(describe(database), prommetrics.Config{ProcessOnly: true})
	require.NoError(b, err)
	require.NoError(b, prometheus.NewRegistry().Register(recorder))
	for way, recorder := range map[string]metrics.Recorder{"series": recorder, "labels": instruments.RecorderFunc(recorder.Record)} {
		for name, report := range events(recorder) {
			b.Run(name+"/"+way, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					report()
				}
			})
		}
	}
}
