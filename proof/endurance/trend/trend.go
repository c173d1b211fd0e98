// Package trend tells what rises for ever from what only goes up and down. It judges the second
// half of a series: the first is for warming up.
package trend

import (
	"cmp"
	"math"
	"slices"
)

// Verdict is what a series shows.
type Verdict int

const (
	// Steady does not rise.
	Steady Verdict = iota
	// Rising does, and by more than is tolerated.
	Rising
	// Unjudged has too few values, or has not gone through a whole cycle.
	Unjudged
)

// Tolerance is what a series may rise by in its second half without being called rising: the larger
// one counts.
type Tolerance struct {
	// Share of the level.
	Share float64
	// Least is in the unit of the series.
	Least float64
}

func (t Tolerance) of(level float64) float64 { return max(t.Share*math.Abs(level), t.Least) }

const (
	// leastValues is the smallest half of which the test can say at all that it rises, at this
	// significance.
	leastValues = 6
	// significance is the largest chance of calling noise rising, before the tolerance has its say.
	significance = 0.01
)

// Line judges a series that stays level but for noise. It rises where two things hold. The test of
// Mann and Kendall finds that later values are larger more often than chance would have it,
// whatever the noise is distributed like. And Sen's slope, the median of all slopes between two
// values, makes more of it than is tolerated. The first keeps a single outlier from being a trend,
// the second a drift that is sure and tiny.
func Line(series []float64, tolerance Tolerance) Verdict {
	half := series[len(series)/2:]
	if len(half) < leastValues {
		return Unjudged
	}
	if chance(half) < significance && slope(half)*float64(len(half)-1) > tolerance.of(median(half)) {
		return Rising
	}
	return Steady
}

// Teeth judges a series that climbs until something resets it, as dead rows do until a vacuum:
// within a tooth it may rise as it likes, so only peaks are compared. It rises where the highest
// value of the second half is above that of the first by more than is tolerated. What grows for
// ever does that: at a steady pace the second half ends twice as high.
//
// The resets are a counter beside each value. Without one in the first half there is nothing to
// compare with.
func Teeth(series, resets []float64, tolerance Tolerance) Verdict {
	middle := len(series) / 2
	if len(series)-middle < leastValues || resets[middle-1] == resets[0] {
		return Unjudged
	}
	before := slices.Max(series[:middle])
	if slices.Max(series[middle:])-before > tolerance.of(before) {
		return Rising
	}
	return Steady
}

// chance is the probability that values without a trend rise like this, or more.
func chance(values []float64) float64 {
	n := float64(len(values))
	var s float64
	ties := map[float64]float64{}
	for i, v := range values {
		ties[v]++
		for _, later := range values[i+1:] {
			s += float64(cmp.Compare(later, v))
		}
	}
	variance := n * (n - 1) * (2*n + 5)
	for _, t := range ties {
		variance -= t * (t - 1) * (2*t + 5)
	}
	if s <= 0 || variance == 0 {
		return 1
	}
	z := (s - 1) / math.Sqrt(variance/18) // with the correction for whole numbers
	return math.Erfc(z/math.Sqrt2) / 2
}

// slope is what a value is above the one before, by the median of all pairs.
func slope(values []float64) float64 {
	var slopes []float64
	for i, v := range values {
		for j := i + 1; j < len(values); j++ {
			slopes = append(slopes, (values[j]-v)/float64(j-i))
		}
	}
	return median(slopes)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
