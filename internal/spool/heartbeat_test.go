package spool_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

func TestHeartbeat_is_read_as_it_was_written(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	limits := postbox.Limits{
		Total: postbox.Limit{PerSecond: 0.5}, Topics: map[string]postbox.Limit{"orders": {MaxConcurrent: 3}},
	}
	for text, want := range map[string]spool.Heartbeat{
		`{"in_flight":{"orders":2}}`: {InFlight: map[string]int{"orders": 2}},
		`{}`:                         {},
		`{"in_flight":{"outages":1},"outages":{"orders":"2026-01-02T03:04:05Z"},"tries":{"orders":"2026-01-02T03:04:06.5Z"}}`: {
			InFlight: map[string]int{"outages": 1}, Outages: map[string]time.Time{"orders": since}, Tries: map[string]time.Time{"orders": since.Add(1500 * time.Millisecond)},
		},
		`{"in_flight":{"orders":2},"limits":{"Total":{"PerSecond":0.5,"MaxConcurrent":0},"Topics":{"orders":{"PerSecond":0,"MaxConcurrent":3}}}}`: {
			InFlight: map[string]int{"orders": 2}, Limits: limits,
		},
		`{"in_flight":{"orders":2},"long_call":{"since":"2026-01-02T03:04:05Z","topic":"orders","id":7,"message_id":"o-7"}}`: {
			InFlight: map[string]int{"orders": 2}, LongCall: &spool.Call{Since: since, Topic: "orders", ID: 7, MessageID: "o-7"},
		},
	} {
		require.Equal(t, text, want.Encode())
		got, err := spool.DecodeHeartbeat([]byte(text))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := spool.DecodeHeartbeat([]byte(`[1]`))
	require.ErrorContains(t, err, "decode a heartbeat")
}

func TestHeartbeat_has_the_first_outages_if_there_are_many(t *testing.T) {
	t.Parallel()
	h := spool.Heartbeat{InFlight: map[string]int{}, Outages: map[string]time.Time{}, Tries: map[string]time.Time{}}
	for i := range 150 {
		h.Outages[fmt.Sprint(i)] = time.UnixMicro(int64(1000 + i))
		h.Tries[fmt.Sprint(i)] = time.UnixMicro(int64(2000 + i))
	}
	got, err := spool.DecodeHeartbeat([]byte(h.Encode()))
	require.NoError(t, err)
	require.Len(t, got.Outages, 100)
	require.Contains(t, got.Outages, "0")
	require.NotContains(t, got.Outages, "100")
	require.Len(t, got.Tries, 100)
	require.Contains(t, got.Tries, "0")
	require.Len(t, h.Outages, 150)
	require.Len(t, h.Tries, 150)
}
