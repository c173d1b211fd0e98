package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// columns of the table, where they were measured.
var columns = []measure.Metric{
	measure.Rate, measure.Statements, measure.RoundTrips, measure.Commits, measure.WAL,
	measure.ClientCPU, measure.ServerCPU, measure.Allocs,
}

// Progress prints each run as it ends.
func Progress(to io.Writer) func(scenario, contender string, sample measure.Sample) {
	return func(scenario, contender string, sample measure.Sample) {
		fmt.Fprintf(to, "  %s round %d %s: %s msg/s\n", scenario, sample.Round, contender, number(sample.Values[measure.Rate]))
	}
}

// Print shows a group: a table, and a line a target.
func (s *Summary) Print(to io.Writer, name string) error {
	for _, group := range s.Groups {
		if group.Name == name {
			fmt.Fprintf(to, "\n%s: %s\n\n", group.Name, group.About)
			if err := group.table(to); err != nil {
				return err
			}
			group.lines(to)
		}
	}
	return nil
}

func (g Group) table(to io.Writer) error {
	metrics := g.metrics()
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight) //nolint:mnd // two blanks between columns
	fmt.Fprint(table, g.called()+"\t")
	for _, metric := range metrics {
		fmt.Fprintf(table, "%s\t", metric)
	}
	fmt.Fprintln(table)
	for _, series := range g.Series {
		fmt.Fprintf(table, "%s\t", series.Contender)
		for _, metric := range metrics {
			fmt.Fprintf(table, "%s\t", cell(series, metric))
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// metrics are those that the group has measured: the usual ones first, then those of its targets,
// then the others.
func (g Group) metrics() []measure.Metric {
	measured := map[measure.Metric]bool{}
	for _, series := range g.Series {
		for _, sample := range series.Samples {
			for metric := range sample.Values {
				measured[metric] = true
			}
		}
	}
	var list []measure.Metric
	for _, metric := range columns {
		if measured[metric] {
			list = append(list, metric)
			delete(measured, metric)
		}
	}
	for _, verdict := range g.Verdicts {
		if measured[verdict.Metric] {
			list = append(list, verdict.Metric)
			delete(measured, verdict.Metric)
		}
	}
	return append(list, slices.Sorted(maps.Keys(measured))...)
}

func (g Group) lines(to io.Writer) {
	fmt.Fprintln(to)
	for _, v := range g.Verdicts {
		fmt.Fprintf(to, "RATIO name=%s ours=%s other=%s ratio=%s target=%s ok=%t contender=%s against=%s metric=%s noise=%s cpu-ratio=%.3f rate-ratio=%.3f\n",
			v.Name, number(v.Value), number(v.Other), number(v.Ratio), number(v.Target), v.OK, v.Ours, v.Against,
			strings.ReplaceAll(string(v.Metric), " ", "-"), strings.ReplaceAll(percent(v.Noise), " ", ""), v.CPU, v.Rate)
	}
}

// percent shows tenths only where they matter.
func percent(part float64) string {
	const whole, few = 100, 10
	if whole*part < few {
		return strconv.FormatFloat(whole*part, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(whole*part, 'f', 0, 64) + " %"
}

// number shows three digits that matter, and no fewer before the point.
func number(value float64) string {
	const whole = 100
	if value >= whole {
		return strconv.FormatFloat(value, 'f', 0, 64)
	}
	return strconv.FormatFloat(value, 'g', 3, 64)
}
