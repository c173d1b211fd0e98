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
		`{"orders":2}`: {InFlight: map[string]int{"orders": 2}},
		`{}`:           {InFlight: map[string]int{}},
		`{"in_flight":{"outages":1},"outages":{"orders":1767323045000000}}`: {
			InFlight: map[string]int{"outages": 1}, Outages: map[string]time.Time{"orders": since},
		},
		`{"in_flight":{"orders":2},"limits":{"total":{"per_second":0.5},"topics":{"orders":{"max_concurrent":3}}}}`: {
			InFlight: map[string]int{"orders": 2}, Limits: limits,
		},
		`{"in_flight":{"orders":2},"long_call":{"since":1767323045000000,"topic":"orders","id":7,"message_id":"o-7"}}`: {
			InFlight: map[string]int{"orders": 2}, LongCall: &spool.Call{Since: since, Topic: "orders", ID: 7, MessageID: "o-7"},
		},
	} {
		require.Equal(t, text, want.Encode())
		got, err := spool.DecodeHeartbeat([]byte(text))
		require.NoError(t, err)
		require.Equal(t, want.InFlight, got.InFlight)
		require.Equal(t, want.Limits, got.Limits)
		require.Len(t, got.Outages, len(want.Outages))
		if want.LongCall != nil {
			require.True(t, since.Equal(got.LongCall.Since))
			got.LongCall.Since = since
		}
		require.Equal(t, want.LongCall, got.LongCall)
		for topic, at := range want.Outages {
			require.True(t, at.Equal(got.Outages[topic]), topic)
		}
	}
	_, err := spool.DecodeHeartbeat([]byte(`[1]`))
	require.ErrorContains(t, err, "decode a heartbeat")
}

func TestHeartbeat_has_the_first_outages_if_there_are_many(t *testing.T) {
	t.Parallel()
	h := spool.Heartbeat{InFlight: map[string]int{}, Outages: map[string]time.Time{}}
	for i := range 150 {
		h.Outages[fmt.Sprint(i)] = time.UnixMicro(int64(1000 + i))
	}
	got, err := spool.DecodeHeartbeat([]byte(h.Encode()))
	require.NoError(t, err)
	require.Len(t, got.Outages, 100)
	require.Contains(t, got.Outages, "0")
	require.NotContains(t, got.Outages, "100")
}
