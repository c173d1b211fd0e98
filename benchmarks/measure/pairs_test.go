package measure

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// seriesOf returns a series whose processor time a message has these values, a round each. Half of
// it is the server's.
func seriesOf(name string, values ...float64) Series {
	s := Series{Contender: name}
	for i, value := range values {
		s.Samples = append(s.Samples, Sample{Round: i + 1, Values: map[Metric]float64{ClientCPU: value / 2, ServerCPU: value / 2, Rate: 1000 / value}})
	}
	return s
}

// The machine slows down in the second half, twice as much in one turn, and ours takes 2 % more
// than the other in each round.
func TestJudge_a_paired_target_tells_apart_what_medians_do_not(t *testing.T) {
	t.Parallel()
	other := []float64{10, 10.1, 9.9, 10, 10, 13, 14, 14, 13, 20}
	ours := make([]float64, len(other))
	for i, value := range other {
		ours[i] = value * 1.02
	}
	ours[4] = 30
	scenario := Scenario{Floor: "other", Contenders: []Contender{{Name: "other"}, {Name: "ours"}}, Targets: []Target{
		{Ours: "ours", Other: "other", Metric: CPU, Lower: true, Paired: true, AtLeast: 0.97},
		{Ours: "ours", Other: "other", AtLeast: 0.97},
	}}
	verdicts := scenario.Judge([]Series{seriesOf("other", other...), seriesOf("ours", ours...)})
	require.InDelta(t, 1/1.02, verdicts[0].Ratio, 1e-9)
	require.InDelta(t, 0, verdicts[0].Noise, 1e-9)
	require.True(t, verdicts[0].OK)
	require.Greater(t, verdicts[1].Noise, 0.5)
	require.False(t, verdicts[1].OK)
}

func TestUncertainty_is_the_interval_of_the_median(t *testing.T) {
	t.Parallel()
	require.Zero(t, uncertainty(nil))
	// Of 15 values the 4th and the 12th bound it, of 5 the least and the most.
	require.InDelta(t, (12.0-4)/2/8, uncertainty([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}), 1e-9)
	require.InDelta(t, (5.0-1)/2/3, uncertainty([]float64{1, 2, 3, 4, 5}), 1e-9)
}
