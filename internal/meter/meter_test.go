package meter_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// notes is a recorder that notes each measurement.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) Record(i *metrics.Instrument, value float64, labels ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprint(strings.TrimPrefix(i.Name, "postbox."), " ", value, " ", strings.Join(labels, ",")))
}

func TestSpool_without_a_recorder_does_nothing(t *testing.T) { // not parallel, since it counts allocations
	none := meter.Of(nil, "outbox", watermill.NopLogger{})
	require.Nil(t, none)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		none.Begin()
		none.Stored("orders", 1)
		none.Tally(time.Time{}).Ended(&spool.Message{}, meter.Done)
		none.Tally(time.Time{}).Report()
		none.Called("orders", 1, time.Second, true)
		none.Settled(time.Second)
		none.Read(nil)
		none.Holds(1, 1)
		none.Circuit("orders", true)
		meter.OfInboxes(nil, watermill.NopLogger{}).Delivered("billing", "orders", meter.Handled, true, nil)
	}))
}

// A rate that begins with the first event would not count it.
func TestSpool_series_of_a_topic_begin_at_zero_once(t *testing.T) {
	t.Parallel()
	recorder := &notes{}
	measured := meter.Of(recorder, "outbox", watermill.NopLogger{})
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() { measured.Circuit("orders", true) })
	}
	calls.Wait()
	require.Len(t, recorder.lines, 5+1+8)
	for _, line := range recorder.lines[:5] {
		require.Contains(t, line, "messages.ended 0 outbox,outbox,orders,")
	}
	require.Equal(t, "circuit.open 0 outbox,outbox,orders", recorder.lines[5])
	for _, line := range recorder.lines[6:] {
		require.Equal(t, "circuit.open 1 outbox,outbox,orders", line)
	}
}

func TestSpool_latency_is_that_of_messages_that_never_waited(t *testing.T) {
	t.Parallel()
	stored := time.UnixMicro(1_000_000)
	recorder := &notes{}
	measured := meter.Of(recorder, spool.QueuePrefix+"mail", watermill.NopLogger{})
	measured.Begin()
	recorder.lines = nil
	tally := measured.Tally(stored.Add(2 * time.Second))
	tally.Ended(&spool.Message{Topic: "mail", CreatedAt: stored}, meter.Done)
	tally.Ended(&spool.Message{Topic: "mail", CreatedAt: stored.Add(-time.Hour), Attempts: 3}, meter.Done)
	tally.Report()
	require.Equal(t, []string{
		"message.attempts 1 queue,mail,mail", "message.attempts 4 queue,mail,mail", "message.latency 2 queue,mail,mail", "messages.ended 2 queue,mail,mail,done",
	}, recorder.lines)
}

func TestTally_counts_each_outcome_of_each_topic(t *testing.T) {
	t.Parallel()
	recorder := &notes{}
	tally := meter.Of(recorder, "outbox", watermill.NopLogger{}).Tally(time.Now())
	for _, ended := range []struct {
		topic   string
		outcome meter.Outcome
	}{{"a", meter.Retry}, {"a", meter.Retry}, {"a", meter.Parked}, {"b", meter.Parked}, {"b", meter.Parked}, {"b", meter.Parked}, {"a", meter.Retry}} {
		tally.Ended(&spool.Message{Topic: ended.topic}, ended.outcome)
	}
	tally.Report()
	tally.Report() // has nothing more to report
	recorder.lines = slices.DeleteFunc(recorder.lines, func(line string) bool { return strings.Contains(line, " 0 ") })
	require.Equal(t, []string{
		"messages.ended 2 outbox,outbox,a,retry", "messages.ended 1 outbox,outbox,a,parked", "messages.ended 3 outbox,outbox,b,parked", "messages.ended 1 outbox,outbox,a,retry",
	}, recorder.lines)
}

// together is a recorder that notes how many values a series gets at once, by instrument.
type together struct {
	notes

	most map[string]int
}

func (r *together) Series(i *metrics.Instrument, labels ...string) metrics.Series {
	return togetherSeries{instruments.SeriesFunc(func(value float64) { r.Record(i, value, labels...) }), r, i}
}

type togetherSeries struct {
	instruments.SeriesFunc

	of *together
	i  *metrics.Instrument
}

func (s togetherSeries) RecordAll(values []float64) {
	s.of.most[s.i.Name] = max(s.of.most[s.i.Name], len(values))
	s.SeriesFunc.RecordAll(values)
}

// A settlement may have more messages than a tally keeps.
func TestTally_reports_the_messages_of_a_topic_together_and_loses_none(t *testing.T) {
	t.Parallel()
	const messages = 1000
	recorder, stored := &together{most: map[string]int{}}, time.UnixMicro(1_000_000)
	tally := meter.Of(recorder, "outbox", watermill.NopLogger{}).Tally(stored.Add(messages * time.Second))
	want, done := map[string]int{}, 0.0
	for n := range messages {
		tally.Ended(&spool.Message{Topic: "orders", CreatedAt: stored.Add(time.Duration(n) * time.Second)}, meter.Done)
		want["message.attempts 1 outbox,outbox,orders"]++
		want[fmt.Sprint("message.latency ", messages-n, " outbox,outbox,orders")]++
	}
	tally.Report()
	got := map[string]int{}
	for _, line := range recorder.lines {
		var n float64
		if _, err := fmt.Sscanf(line, "messages.ended %g outbox,outbox,orders,done", &n); err == nil {
			done += n
		} else if strings.HasPrefix(line, "message.") {
			got[line]++
		}
	}
	require.Equal(t, want, got)
	require.InDelta(t, messages, done, 0)
	require.Equal(t, map[string]int{instruments.Attempts.Name: 64, instruments.Latency.Name: 64}, recorder.most)
	require.Less(t, len(recorder.lines), 2*messages+50, "outcomes are counted together")
}

func TestGuarded_a_recorder_that_panics_or_is_a_nil_pointer_does_no_harm(t *testing.T) {
	t.Parallel()
	var none *notes
	require.Nil(t, meter.Of(none, "outbox", watermill.NopLogger{}))

	logger := watermill.NewCaptureLogger()
	panics := instruments.RecorderFunc(func(*metrics.Instrument, float64, ...string) { panic("full") })
	measured := meter.Of(panics, "outbox", logger)
	for range 3 {
		measured.Read(nil)
	}
	require.Len(t, logger.Captured()[watermill.ErrorLogLevel], 1)
}

// finder is a recorder that counts how often it has to find a series.
type finder struct {
	notes

	found int
}

func (f *finder) Series(i *metrics.Instrument, labels ...string) metrics.Series {
	f.mu.Lock()
	f.found++
	f.mu.Unlock()
	return instruments.SeriesFunc(func(value float64) { f.Record(i, value, labels...) })
}

func TestSpool_series_of_a_topic_are_found_once(t *testing.T) {
	t.Parallel()
	recorder, plain := &finder{}, &notes{}
	for _, measured := range []*meter.Spool{meter.Of(recorder, "outbox", watermill.NopLogger{}), meter.Of(plain, "outbox", watermill.NopLogger{})} {
		for range 3 {
			measured.Stored("orders", 1)
			tally := measured.Tally(time.Time{})
			tally.Ended(&spool.Message{Topic: "orders"}, meter.Done)
			tally.Report()
			measured.Called("orders", 7, time.Second, true)
			measured.Called("orders", 7, time.Second, false)
			measured.Circuit("orders", true)
		}
	}
	require.Equal(t, plain.lines, recorder.lines)
	require.Equal(t, len([]string{
		"stored", "ended, five outcomes", "", "", "", "", "circuit", "attempts", "latency", "called", "called without success", "batch",
	}), recorder.found)
}

func TestInboxes_series_are_found_once_and_say_what_became_of_a_message(t *testing.T) {
	t.Parallel()
	recorder := &finder{}
	inboxes := meter.OfInboxes(recorder, watermill.NopLogger{})
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			inboxes.Delivered("billing", "orders", meter.Handled, true, nil)
			inboxes.Delivered("billing", "orders", meter.Handled, false, nil)
			inboxes.Delivered("billing", "orders", meter.Handled, true, errors.New("no"))
			inboxes.Delivered("billing", "returns", meter.Stored, true, nil)
			inboxes.Delivered("shipping", "orders", meter.Stored, false, errors.New("no"))
		})
	}
	calls.Wait()
	slices.Sort(recorder.lines)
	require.Equal(t, []string{
		"inbox.deliveries 1 billing,orders,duplicate", "inbox.deliveries 1 billing,orders,failed", "inbox.deliveries 1 billing,orders,handled",
		"inbox.deliveries 1 billing,returns,stored", "inbox.deliveries 1 shipping,orders,failed",
	}, slices.Compact(slices.Clone(recorder.lines)))
	require.Len(t, recorder.lines, 3*5)
	require.Equal(t, 5, recorder.found)
}

func TestGuarded_a_recorder_that_panics_when_it_is_asked_for_a_series_does_no_harm(t *testing.T) {
	t.Parallel()
	logger := watermill.NewCaptureLogger()
	measured := meter.Of(&unfindable{}, "outbox", logger)
	for range 3 {
		measured.Stored("orders", 1)
		measured.Circuit("orders", true)
	}
	require.Len(t, logger.Captured()[watermill.ErrorLogLevel], 1)
}

type unfindable struct{ notes }

func (*unfindable) Series(*metrics.Instrument, ...string) metrics.Series { panic("full") }
