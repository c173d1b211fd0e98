package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Settings that are stored were written by some version of Postbox, or by hand.
func FuzzDecodeSettings(f *testing.F) {
	for _, text := range []string{``, `{}`, `null`, `[]`, `{"PageSize":-1}`, `{"Attempts":1e3}`, `{"History":"1h"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		settings, err := spool.DecodeSettings(text)
		if err != nil {
			require.Zero(t, settings)
			return
		}
		config := Config{Amounts: Amounts{PageSize: 500, Workers: 16, BatchSize: 1}, Times: Times{PollMin: time.Millisecond, PollMax: time.Second}}.under(settings)
		require.Positive(t, config.PageSize)
		require.Positive(t, config.Workers)
		require.Positive(t, config.PollMin)
	})
}

func TestConfig_operators_give_attempts_to_messages_that_are_tried_for_ever(t *testing.T) {
	t.Parallel()
	configured := Config{Retry: postbox.RetryProfile{Attempts: -1}}
	require.Equal(t, -1, configured.under(spool.Settings{}).Retry.Attempts)
	require.Equal(t, 3, configured.under(spool.Settings{Attempts: 3}).Retry.Attempts)
}
