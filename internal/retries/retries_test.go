package retries_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/retries"
)

func pauses(p postbox.RetryProfile) []time.Duration {
	p = retries.WithDefaults(p, 15)
	var list []time.Duration
	for failed := 1; !retries.Exhausted(p, failed); failed++ {
		list = append(list, retries.Delay(p, failed))
	}
	return list
}

// Covers feature 1.6.
func TestRetry_five_times_after_1_2_4_8_16_seconds(t *testing.T) {
	t.Parallel()
	brief := postbox.RetryProfile{Attempts: 6, Jitter: -1}
	require.NoError(t, retries.Validate(retries.WithDefaults(brief, 10)))
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second},
		pauses(brief))
}

// Covers feature 0.8.
func TestRetry_fifteen_attempts_from_two_seconds_on(t *testing.T) {
	t.Parallel()
	patient := postbox.RetryProfile{Base: 2 * time.Second, Cap: 24 * time.Hour}
	profile := patient
	profile.Jitter = -1
	exact := pauses(profile)
	require.Len(t, exact, 14)
	require.Equal(t, 2*time.Second, exact[0])
	require.Equal(t, 2*time.Second<<13, exact[13], "nothing caps the last one")
	for i, pause := range pauses(patient) {
		require.LessOrEqual(t, pause, exact[i], "jitter only shortens")
	}
}

func TestRetry_cap_multiplier_and_jitter(t *testing.T) {
	t.Parallel()
	profile := retries.WithDefaults(postbox.RetryProfile{Base: time.Second, Multiplier: 1.5, Cap: 2 * time.Second, Jitter: 0.25}, 4)
	for range 100 {
		require.InDelta(t, 875*time.Millisecond, retries.Delay(profile, 1), float64(125*time.Millisecond))
		require.InDelta(t, 1750*time.Millisecond, retries.Delay(profile, 1000), float64(250*time.Millisecond), "1.5 to the 999th is more than a duration holds")
	}
	require.False(t, retries.Exhausted(postbox.RetryProfile{Attempts: -1}, 1<<40))
}

func TestRetry_bad_profiles_say_what_to_do(t *testing.T) {
	t.Parallel()
	for _, odd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.ErrorContains(t, retries.Validate(retries.WithDefaults(postbox.RetryProfile{Multiplier: odd}, 10)), "Multiplier")
		require.ErrorContains(t, retries.Validate(retries.WithDefaults(postbox.RetryProfile{Jitter: odd}, 10)), "Jitter")
	}
	err := retries.Validate(postbox.RetryProfile{Attempts: -3, Base: 3, Cap: 2, Multiplier: 0.5, Jitter: 2})
	for _, problem := range []string{"-1 to never give up", "Base and Cap", "Multiplier", "-1 for exact pauses"} {
		require.ErrorContains(t, err, problem)
	}
}
