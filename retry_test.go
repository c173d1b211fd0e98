package postbox_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
)

func pauses(p postbox.RetryProfile) []time.Duration {
	p = p.WithDefaults(10)
	var list []time.Duration
	for failed := 1; !p.Exhausted(failed); failed++ {
		list = append(list, p.Delay(failed))
	}
	return list
}

// Covers feature 1.6.
func TestRetryBriefly_retries_five_times_after_1_2_4_8_16_seconds(t *testing.T) {
	t.Parallel()
	require.NoError(t, postbox.RetryBriefly().WithDefaults(10).Validate())
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second},
		pauses(postbox.RetryBriefly()))
}

// Covers feature 0.8.
func TestRetryPatiently_has_fifteen_attempts_from_two_seconds_on(t *testing.T) {
	t.Parallel()
	profile := postbox.RetryPatiently()
	profile.Jitter = postbox.NoJitter
	exact := pauses(profile)
	require.Len(t, exact, 14)
	require.Equal(t, 2*time.Second, exact[0])
	require.Equal(t, 2*time.Second<<13, exact[13], "nothing caps the last one")
	for i, pause := range pauses(postbox.RetryPatiently()) {
		require.LessOrEqual(t, pause, exact[i], "jitter only shortens")
	}
}

func TestRetry_cap_multiplier_and_jitter(t *testing.T) {
	t.Parallel()
	profile := postbox.RetryProfile{Base: time.Second, Multiplier: 1.5, Cap: 2 * time.Second, Jitter: 0.25}.WithDefaults(4)
	for range 100 {
		require.InDelta(t, 875*time.Millisecond, profile.Delay(1), float64(125*time.Millisecond))
		require.InDelta(t, 1750*time.Millisecond, profile.Delay(1000), float64(250*time.Millisecond), "1.5 to the 999th is more than a duration holds")
	}
	require.False(t, postbox.RetryProfile{Attempts: postbox.Unlimited}.Exhausted(1<<40))
}

func TestRetry_bad_profiles_say_what_to_do(t *testing.T) {
	t.Parallel()
	for _, odd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.ErrorContains(t, postbox.RetryProfile{Multiplier: odd}.WithDefaults(10).Validate(), "Multiplier")
		require.ErrorContains(t, postbox.RetryProfile{Jitter: odd}.WithDefaults(10).Validate(), "Jitter")
	}
	err := postbox.RetryProfile{Attempts: -3, Base: 3, Cap: 2, Multiplier: 0.5, Jitter: 2}.Validate()
	for _, problem := range []string{"postbox.Unlimited", "Base and Cap", "Multiplier", "postbox.NoJitter"} {
		require.ErrorContains(t, err, problem)
	}
}
