package middleware

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/retries"
)

// A reset that a service has announced may be over when the handler returns.
func TestBrake_pauses_as_the_profile_says_after_a_time_that_is_over(t *testing.T) {
	t.Parallel()
	cause := errors.New("too many requests")
	for name, test := range map[string]struct {
		err  error
		want time.Duration
	}{
		"none":   {cause, 3 * time.Second},
		"ahead":  {postbox.RetryAfter(cause, time.Minute), time.Minute},
		"now":    {postbox.RetryAfter(cause, 0), 3 * time.Second},
		"passed": {postbox.RetryAfter(cause, -time.Second), 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := brake{profile: retries.WithDefaults(postbox.RetryProfile{Base: 3 * time.Second, Jitter: -1}, defaultMaxAttempts)}
				began := time.Now()
				b.ended(t.Context(), 1, test.err)
				require.Equal(t, test.want, time.Since(began))
			})
		})
	}
}
