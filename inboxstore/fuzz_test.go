package inboxstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// maxClaim is what the column of claims takes on MySQL, in bytes.
const maxClaim = 255

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
		if config.Validate() != nil || schedule == "" {
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

// Ids come from whoever publishes: two of them have one claim only if they are the same, and every claim fits.
func FuzzKey(f *testing.F) {
	f.Add("1", "2")
	f.Add("", "\x00")
	f.Add("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8")
	f.Add("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01arz3ndektsv4rrffq69g5fav")
	f.Add("{6ba7b810-9dad-11d1-80b4-00c04fd430c8}", "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	f.Add(string(make([]byte, maxTextID)), string(make([]byte, maxTextID+1)))
	f.Fuzz(func(t *testing.T, one, other string) {
		a := Key{Consumer: "billing", Topic: "orders", MessageID: one}.bytes()
		b := Key{Consumer: "billing", Topic: "orders", MessageID: other}.bytes()
		require.Equal(t, one == other, string(a) == string(b))
		require.NotEqual(t, lockOf(a), b)
		require.LessOrEqual(t, len(a), maxClaim)

		c := Key{Consumer: one, Topic: other, MessageID: "1"}.bytes()
		d := Key{Consumer: other, Topic: one, MessageID: "1"}.bytes()
		require.Equal(t, one == other, string(c) == string(d), "who handles what is told apart")
	})
}
