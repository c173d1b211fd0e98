package command

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
)

func TestCounted_shows_how_a_number_was_found(t *testing.T) {
	t.Parallel()
	require.Equal(t, "10000", counted(10_000, admin.Exact, 0))
	require.Equal(t, "≥ 10,000", counted(10_000, admin.AtLeast, 0))
	require.Equal(t, "?", counted(0, admin.AtLeast, 0))
	require.Equal(t, "~ 9,812,003 (40s ago)", counted(9_812_003, admin.Counted, 40*time.Second))
	require.Equal(t, "~ 12 (1m2s ago)", counted(12, admin.Counted, 62*time.Second))
	info := admin.QueueInfo{Pending: 1, Accuracy: admin.Accuracies{Pending: admin.Exact}}
	require.Equal(t, "1 message", pendingMessages(info))
	info.Accuracy.Pending = admin.AtLeast
	require.Equal(t, "≥ 1 messages", pendingMessages(info))
}
