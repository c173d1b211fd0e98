package trend_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/proof/endurance/trend"
)

const length = 40

// made returns a series of so many values.
func made(n int, value func(i int) float64) []float64 {
	series := make([]float64, n)
	for i := range series {
		series[i] = value(i)
	}
	return series
}

func noise(seed uint64) func() float64 {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test repeats itself
	return random.NormFloat64
}

var tenth = trend.Tolerance{Share: 0.1, Least: 1}

func TestLine_judges_made_series(t *testing.T) {
	t.Parallel()
	random := noise(1)
	for name, c := range map[string]struct {
		value func(i int) float64
		want  trend.Verdict
	}{
		"flat":                     {func(int) float64 { return 100 }, trend.Steady},
		"zero":                     {func(int) float64 { return 0 }, trend.Steady},
		"noisy":                    {func(int) float64 { return 100 + 30*random() }, trend.Steady},
		"rising":                   {func(i int) float64 { return 100 + 2*float64(i) }, trend.Rising},
		"rising from zero":         {func(i int) float64 { return float64(i) }, trend.Rising},
		"rising under noise":       {func(i int) float64 { return 100 + 2*float64(i) + 5*random() }, trend.Rising},
		"rising by steps":          {func(i int) float64 { return 100 + 20*float64(i/5) }, trend.Rising},
		"rising within tolerance":  {func(i int) float64 { return 100 + 0.3*float64(i) }, trend.Steady},
		"falling":                  {func(i int) float64 { return 100 - 2*float64(i) }, trend.Steady},
		"warming up, then level":   {func(i int) float64 { return 100 * min(float64(i)/(length/2), 1) }, trend.Steady},
		"level, then rising":       {func(i int) float64 { return 100 + 10*max(float64(i)-length/2, 0) }, trend.Rising},
		"one outlier":              {func(i int) float64 { return 100 + 900*float64(i/(length-1)) }, trend.Steady},
		"short waves":              {func(i int) float64 { return 100 + 50*float64(i%4) }, trend.Steady},
		"one step in the 2nd half": {func(i int) float64 { return 100 + 50*float64(i/(length*3/4)) }, trend.Rising},
	} {
		require.Equal(t, c.want, trend.Line(made(length, c.value), tenth), name)
	}
}

// The chance of calling noise rising is what it is said to be, without any tolerance.
func TestLine_seldom_takes_noise_for_a_trend(t *testing.T) {
	t.Parallel()
	random := noise(2)
	const runs = 2000
	rising := 0
	for range runs {
		if trend.Line(made(length, func(int) float64 { return 100 + random() }), trend.Tolerance{}) == trend.Rising {
			rising++
		}
	}
	require.Less(t, rising, runs*2/100)
}

func TestTeeth_judges_made_series(t *testing.T) {
	t.Parallel()
	const tooth = 6
	random := noise(3)
	sawtooth := func(i int) float64 { return 1000 * float64(i%tooth) }
	vacuums := func(i int) float64 { return float64(i / tooth) }
	never := func(int) float64 { return 0 }
	for name, c := range map[string]struct {
		value, resets func(i int) float64
		want          trend.Verdict
	}{
		"sawtooth":                     {sawtooth, vacuums, trend.Steady},
		"noisy sawtooth":               {func(i int) float64 { return sawtooth(i) * (1 + 0.02*random()) }, vacuums, trend.Steady},
		"sawtooth that rises":          {func(i int) float64 { return sawtooth(i) + 100*float64(i) }, vacuums, trend.Rising},
		"teeth that grow":              {func(i int) float64 { return sawtooth(i) * float64(1+i/tooth) }, vacuums, trend.Rising},
		"grows until the first vacuum": {func(i int) float64 { return 1000 * float64(min(i, tooth)) }, vacuums, trend.Steady},
		"vacuums do not help":          {func(i int) float64 { return 1000 * float64(i) }, vacuums, trend.Rising},
		"no vacuum yet":                {func(i int) float64 { return 1000 * float64(i) }, never, trend.Unjudged},
	} {
		require.Equal(t, c.want, trend.Teeth(made(length, c.value), made(length, c.resets), tenth), name)
	}
}

func TestTrend_few_values_are_not_judged(t *testing.T) {
	t.Parallel()
	rising := func(i int) float64 { return float64(i) }
	for n := range 11 {
		require.Equal(t, trend.Unjudged, trend.Line(made(n, rising), tenth), n)
		require.Equal(t, trend.Unjudged, trend.Teeth(made(n, rising), made(n, rising), tenth), n)
	}
}
