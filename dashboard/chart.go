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
	// emptyLeast is from which part of the width on, in percent, a gap is marked.
	emptyLeast = 5
)

// chart is the backlog of the last hour as a line. The page draws it as SVG.
type chart struct {
	drawing

	Highest int
	Points  int
	From    string // how long ago the left end is
	Label   string // for a screen reader
}

// drawing has paths, of a line and of the area below it, and the gaps between samples.
type drawing struct {
	Line, Area string
	Gaps       []gap
}

// gap is a part of the width without samples, in percent.
type gap struct{ X, Width int }

// point is a sample in a chart.
type point struct {
	at    time.Time
	value float64
}

// axis is the time that a chart shows. A line is interrupted where no sample was for longer than
// apart.
type axis struct {
	from  time.Time
	long  time.Duration
	apart time.Duration
}

// x is where a time is. There are at most as many places as the chart is wide.
func (a axis) x(at time.Time) int {
	return int(chartWidth * at.Sub(a.from).Seconds() / a.long.Seconds())
}

func (a axis) draw(points []point, highest float64) (d drawing) {
	var line, area strings.Builder
	end := 0
	for i, p := range points {
		x, y := a.x(p.at), chartHeight*(1-p.value/max(highest, 1e-9))
		if i > 0 && p.at.Sub(points[i-1].at) <= a.apart {
			fmt.Fprintf(&line, "L%d %.1f", x, y)
			fmt.Fprintf(&area, "L%d %.1f", x, y)
		} else {
			d.leave(end, x)
			// A point that stands alone is a short line.
			fmt.Fprintf(&line, "M%d %.1fh3m-3 0", x, y)
			fmt.Fprintf(&area, "M%d %dV%.1f", x, chartHeight, y)
		}
		if end = x; i == len(points)-1 || points[i+1].at.Sub(p.at) > a.apart {
			fmt.Fprintf(&area, "V%dZ", chartHeight)
		}
	}
	d.leave(end, chartWidth)
	d.Line, d.Area = line.String(), area.String()
	return d
}

// leave marks a gap that is wide enough.
func (d *drawing) leave(from, until int) {
	if width := (until - from) * 100 / chartWidth; width >= emptyLeast {
		d.Gaps = append(d.Gaps, gap{from * 100 / chartWidth, width})
	}
}

// chartOf draws the highest value of each step of the width, so the page has at most as many points
// as the chart is wide.
func chartOf(c counted, target admin.Target) chart {
	over := axis{c.at.Add(-c.span()), c.span(), chartGap}
	drawn := chart{From: spanText(over.long)}
	var points []point
	for _, s := range c.kept {
		value, sampled := s.pending[target]
		if !sampled {
			continue
		}
		drawn.Highest = max(drawn.Highest, value)
		p := point{s.at, float64(value)}
		if n := len(points) - 1; n >= 0 && over.x(points[n].at) == over.x(s.at) {
			p.value, points = max(p.value, points[n].value), points[:n]
		}
		points = append(points, p)
	}
	if drawn.Points = len(points); drawn.Points > 0 {
		drawn.drawing = over.draw(points, float64(drawn.Highest))
		drawn.Label = fmt.Sprintf("Backlog of the last %s: now %s, at most %s", drawn.From, amount(int(points[len(points)-1].value)), amount(drawn.Highest))
	}
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
