package dashboard

import (
	"context"
	"fmt"
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

// activityChart has one or two lines over the same time.
type activityChart struct {
	Title, Highest, Label string
	Lines                 []activityLine
	Marks                 string // a path: where processes started
	Started               int
}

type activityLine struct{ Name, Path string }

// activityShare is the part of the time of a page that the charts may take, one in so many.
const activityShare = 4

// lateRows is how long after a minute its rows may come.
const lateRows = 5 * time.Second

// The size of such a chart, in its own units.
const (
	activityWidth  = 720
	activityHeight = 80
)

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

// chartsOf draws the parts, of which those are missing in which nothing was done.
func chartsOf(parts []admin.Minutes, from time.Time, s spanOf) []activityChart {
	all := make([]admin.Minutes, s.long/s.step)
	started := 0
	for _, part := range parts {
		if n := int(part.From.Sub(from) / s.step); n >= 0 && n < len(all) {
			all[n] = part
			started += part.Started
		}
	}
	a := func(text string) string { return text + " in " + s.part }
	charts := []activityChart{
		drawn("Messages", func(n float64) string { return a(amount(int(n))) }, all,
			curve{"stored", func(m admin.Minutes) float64 { return float64(m.Stored) }}, curve{"done", func(m admin.Minutes) float64 { return float64(m.Done) }}),
		drawn("Failures", func(n float64) string { return a(amount(int(n))) }, all,
			curve{"tried again", func(m admin.Minutes) float64 { return float64(m.Failed) }}, curve{"dead", func(m admin.Minutes) float64 { return float64(m.Dead) }}),
		drawn("Waiting", seconds, all,
			curve{"95 % are done within", func(m admin.Minutes) float64 { return m.WaitSlow.Seconds() }}, curve{"half", func(m admin.Minutes) float64 { return m.WaitMedian.Seconds() }}),
		drawn("Calls", seconds, all,
			curve{"95 % take at most", func(m admin.Minutes) float64 { return m.CallSlow.Seconds() }}, curve{"half", func(m admin.Minutes) float64 { return m.CallMedian.Seconds() }}),
	}
	var marks strings.Builder
	for n, part := range all {
		if part.Started > 0 {
			fmt.Fprintf(&marks, "M%d 0V%d", xOf(n, len(all)), activityHeight)
		}
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

func xOf(n, of int) int { return n * activityWidth / max(1, of-1) }

func drawn(title string, text func(float64) string, parts []admin.Minutes, curves ...curve) activityChart {
	highest := 0.0
	for _, part := range parts {
		for _, c := range curves {
			highest = max(highest, c.of(part))
		}
	}
	chart := activityChart{Title: title, Highest: text(highest)}
	scale := max(highest, 1e-9)
	var names []string
	for _, c := range curves {
		var path strings.Builder
		for n, part := range parts {
			how := "L"
			if n == 0 {
				how = "M"
			}
			fmt.Fprintf(&path, "%s%d %.1f", how, xOf(n, len(parts)), activityHeight*(1-c.of(part)/scale))
		}
		chart.Lines = append(chart.Lines, activityLine{c.name, path.String()})
		names = append(names, c.name)
	}
	chart.Label = fmt.Sprintf("%s: %s, at most %s", title, strings.Join(names, " and "), chart.Highest)
	return chart
}
