package dashboard

import (
	"fmt"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// The size of a chart, in its own units; the page stretches it.
const (
	chartWidth  = 360
	chartHeight = 60
	// chartLeast is the time that a chart shows at least: one of a few seconds would only show
	// noise.
	chartLeast = 5 * time.Minute
	// chartGap is the time without samples at which the line is interrupted: no page was open.
	chartGap = 90 * time.Second
)

// chart is the backlog of the last hour as a line. The page draws it as SVG.
type chart struct {
	Line, Area string // paths
	Highest    int
	Points     int
	From       string // how long ago the left end is
	Label      string // for a screen reader
}

// point is a sample of one outbox or queue in the chart.
type point struct {
	x     float64
	at    time.Time
	value int
}

// chartOf draws the highest value of each step of the width, so the page has at most as many points
// as the chart is wide.
func chartOf(c counted, target admin.Target) chart {
	width := c.span()
	points, highest := pointsOf(c, target, width)
	drawn := chart{Highest: highest, Points: len(points), From: spanText(width)}
	if len(points) == 0 {
		return drawn
	}
	var line, area strings.Builder
	for i, p := range points {
		y := chartHeight - chartHeight*float64(p.value)/float64(max(1, highest))
		switch {
		case i > 0 && p.at.Sub(points[i-1].at) <= chartGap:
			fmt.Fprintf(&line, "L%.1f %.1f", p.x, y)
			fmt.Fprintf(&area, "L%.1f %.1f", p.x, y)
		default:
			if i > 0 {
				fmt.Fprintf(&area, "V%dZ", chartHeight)
			}
			// A point that stands alone is a short line.
			fmt.Fprintf(&line, "M%.1f %.1fh1", p.x, y)
			fmt.Fprintf(&area, "M%.1f %dV%.1f", p.x, chartHeight, y)
		}
	}
	fmt.Fprintf(&area, "V%dZ", chartHeight)
	drawn.Line, drawn.Area = line.String(), area.String()
	drawn.Label = fmt.Sprintf("Backlog of the last %s: now %s, at most %s", drawn.From, amount(points[len(points)-1].value), amount(highest))
	return drawn
}

// span is the time that the samples cover.
func (c counted) span() time.Duration {
	if len(c.kept) == 0 {
		return chartLeast
	}
	return min(max(c.at.Sub(c.kept[0].at), chartLeast), sampleSpan)
}

// spanText writes the time that a chart shows.
func spanText(d time.Duration) string {
	if d >= sampleSpan {
		return "1 hour"
	}
	return plural(int(d.Minutes()), "minute")
}

func pointsOf(c counted, target admin.Target, width time.Duration) (points []point, highest int) {
	for _, s := range c.kept {
		value, sampled := s.pending[target]
		if !sampled {
			continue
		}
		highest = max(highest, value)
		x := float64(int(chartWidth * (1 - c.at.Sub(s.at).Seconds()/width.Seconds())))
		if n := len(points); n > 0 && points[n-1].x == x {
			points[n-1].value, points[n-1].at = max(points[n-1].value, value), s.at
			continue
		}
		points = append(points, point{x, s.at, value})
	}
	return points, highest
}
