package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A schedule is refused, or has a next time after whatever time a message was stored.
func FuzzBatchConfig_Schedule(f *testing.F) {
	for _, schedule := range []string{
		"", "0 0 * * *", "0 30 2 * * *", "@daily", "@every 1s", "@reboot", "0 0 31 2 *", "0 0 30 2 *", "* * * * * *", "*/0 * * * *", "59-1 * * * *",
		"CRON_TZ=Europe/Berlin 0 0 * * *", "TZ=", "TZ=UTC", "CRON_TZ=../../etc 0 0 * * *", "0 0 29 2 1", "a b c d e", "1-9999999999 * * * *",
	} {
		f.Add(schedule, int64(1_790_000_000))
	}
	f.Fuzz(func(t *testing.T, schedule string, stored int64) {
		const year9999 = 253_402_300_799 // beyond that Go's own formats end
		if stored < 0 || stored > year9999 {
			return
		}
		config := BatchConfig{Schedule: schedule}
		config.setDefaults()
		if config.validate(dialect.Kind(postbox.SQLite)) != nil || schedule == "" {
			return
		}
		gather, err := config.gather()
		require.NoError(t, err)
		at := time.Unix(stored, 0)
		if due := gather.Due(at); !due.IsZero() {
			require.True(t, due.After(at), "%s is not after %s", due, at)
		}
	})
}
