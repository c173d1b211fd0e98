package dashboard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// spanField chooses how much time the charts of an outbox or a queue show.
const spanField = "span"

// spanOf is a time that the charts can show, in parts.
type spanOf struct {
	name, text string
	long, step time.Duration
	part       string // the step
	layout     string // of a time below a chart
}

var spans = []spanOf{
	{"hour", "An hour", time.Hour, time.Minute, "a minute", "15:04"},
	{"day", "A day", 24 * time.Hour, 15 * time.Minute, "15 minutes", "15:04"},
	{"week", "A week", 7 * 24 * time.Hour, 2 * time.Hour, "2 hours", "Jan 2, 15:04"},
}

// activity is what all processes together did with an outbox or a queue, in the past.
type activity struct {
	Spans               []navItem
	Charts              []activityChart
	From, Middle, Until string
	Problem             string // it could not be read
}

// activityChart has two lines over the same time.
type activityChart struct {
	Title, Highest, Label string
	Lines                 []activityLine
	Marks                 string // a path: where processes started
	Started               int
}

type activityLine struct {
	drawing

	Name string
}

// activityShare is the part of the time of a page that the charts may take, one in so many.
const activityShare = 4

// lateRows is how long after a minute its rows may come.
const lateRows = 5 * time.Second

// activityOf reads what processes have written of their minutes. Older charts do not depend on
// whether a page was open.
func (h *Handler) activityOf(ctx context.Context, q *request, target admin.Target) (activity, error) {
	chosen := spans[0]
	var view activity
	for _, s := range spans {
		if q.query.Get(spanField) == s.name {
			chosen = s
		}
	}
	if given := q.query.Get(spanField); given != "" && given != chosen.name {
		return view, badf("%s: %.30q is none of hour, day and week", spanField, given)
	}
	for _, s := range spans {
		view.Spans = append(view.Spans, navItem{toTarget(queuePage, target, spanField, s.name).String(), s.text, s.name == chosen.name})
	}
	until := time.Now().UTC().Add(-lateRows).Truncate(time.Minute) // a part that is not over would look like a fall
	from := until.Add(-chosen.long)
	// It must not cost the rest of the page, which has the buttons.
	ctx, cancel := context.WithTimeout(ctx, h.config.Timeout/activityShare)
	defer cancel()
	parts, err := h.admin.Minutes(ctx, target, from, until, chosen.step)
	if err != nil {
		view.Problem, _ = cut(err.Error(), maxText)
		return view, nil
	}
	view.From, view.Middle, view.Until = from.Format(chosen.layout), from.Add(chosen.long/2).Format(chosen.layout), until.Format(chosen.layout)
	if len(parts) > 0 {
		view.Charts = chartsOf(parts, from, chosen)
	}
	return view, nil
}

// chartsOf draws the parts. One that is missing was idle if no process has started in the next one,
// and otherwise it has no samples.
func chartsOf(parts []admin.Minutes, from time.Time, s spanOf) []activityChart {
	over, next := axis{from, s.long - s.step, s.step}, from
	var all []admin.Minutes
	var marks strings.Builder
	started := 0
	for _, part := range parts {
		for ; part.Started == 0 && next.Before(part.From); next = next.Add(s.step) {
			all = append(all, admin.Minutes{From: next})
		}
		if part.Started > 0 {
			fmt.Fprintf(&marks, "M%d 0V%d", over.x(part.From), chartHeight)
		}
		all, next, started = append(all, part), part.From.Add(s.step), started+part.Started
	}
	messages := func(n float64) string { return amount(int(n)) + " in " + s.part }
	waits := slices.DeleteFunc(slices.Clone(all), func(m admin.Minutes) bool { return m.WaitSlow == 0 })
	calls := slices.DeleteFunc(slices.Clone(all), func(m admin.Minutes) bool { return m.CallSlow == 0 })
	charts := []activityChart{
		over.drawn("Messages", messages, all,
			curve{"stored", func(m admin.Minutes) float64 { return float64(m.Stored) }}, curve{"done", func(m admin.Minutes) float64 { return float64(m.Done) }}),
		over.drawn("Failures", messages, all,
			curve{"tried again", func(m admin.Minutes) float64 { return float64(m.Failed) }}, curve{"dead", func(m admin.Minutes) float64 { return float64(m.Dead) }}),
		over.drawn("Waiting", seconds, waits,
			curve{"95 % are done within", func(m admin.Minutes) float64 { return m.WaitSlow.Seconds() }}, curve{"half", func(m admin.Minutes) float64 { return m.WaitMedian.Seconds() }}),
		over.drawn("Calls", seconds, calls,
			curve{"95 % take at most", func(m admin.Minutes) float64 { return m.CallSlow.Seconds() }}, curve{"half", func(m admin.Minutes) float64 { return m.CallMedian.Seconds() }}),
	}
	for n := range charts {
		charts[n].Marks, charts[n].Started = marks.String(), started
	}
	return charts
}

func seconds(n float64) string { return span(time.Duration(n * float64(time.Second))) }

// curve is a value of each part, with its name.
type curve struct {
	name string
	of   func(admin.Minutes) float64
}

func (a axis) drawn(title string, text func(float64) string, parts []admin.Minutes, curves ...curve) activityChart {
	chart := activityChart{Title: title, Label: title + ": no samples"}
	highest := 0.0
	for _, part := range parts {
		for _, c := range curves {
			highest = max(highest, c.of(part))
		}
	}
	for _, c := range curves {
		points := make([]point, len(parts))
		for n, part := range parts {
			points[n] = point{part.From, c.of(part)}
		}
		chart.Lines = append(chart.Lines, activityLine{a.draw(points, highest), c.name})
	}
	if len(parts) > 0 {
		chart.Highest = text(highest)
		chart.Label = fmt.Sprintf("%s: %s and %s, at most %s", title, curves[0].name, curves[1].name, chart.Highest)
	}
	return chart
}
