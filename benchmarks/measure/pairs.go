package measure

import (
	"math"
	"slices"
)

// pairs returns the ratios of the rounds, sorted: of what a metric of ours is to that of the other
// in the same round, or of the other's to ours if lower is better. Other work on the machine
// changes both turns of a round alike, since they follow each other.
func pairs(ours, other Series, metric Metric, lower bool) []float64 {
	var ratios []float64
	for _, a := range ours.Samples {
		for _, b := range other.Samples {
			x, measured := a.value(metric)
			y, too := b.value(metric)
			if lower {
				x, y = y, x
			}
			if a.Round == b.Round && measured && too && y > 0 {
				ratios = append(ratios, x/y)
			}
		}
	}
	slices.Sort(ratios)
	return ratios
}

// uncertainty is how far the median of sorted values may lie from that of endlessly many, as a part
// of it: half of the interval that contains the latter with a probability of 95 %, whatever the
// distribution.
func uncertainty(sorted []float64) float64 {
	n := len(sorted)
	if n == 0 || median(sorted) == 0 {
		return 0
	}
	const deviations = 1.96
	rank := math.Round((float64(n) - deviations*math.Sqrt(float64(n))) / 2) // of the values on each side, counted from the end, the first in the interval
	beside := max(0, int(rank)-1)
	return (sorted[n-1-beside] - sorted[beside]) / 2 / median(sorted)
}
