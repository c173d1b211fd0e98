package soak

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/endurance/trend"
)

// column is something to look at. Without a judge it is for information.
type column struct {
	name  string
	value func(s sample) float64
	judge func(series, vacuums []float64) trend.Verdict
}

// columns with what each may rise by. Memory settles when the garbage collector has seen the usual
// load; the rest of a process has no reason to grow at all. Tables and dead rows are given by when
// autovacuum comes by, and one that comes a little late is no trend.
var columns = []column{
	{"msg/s", func(s sample) float64 { return s.rate }, nil},
	{"backlog", func(s sample) float64 { return s.backlog }, line(0.5, 100)},
	{"oldest ms", func(s sample) float64 { return s.oldest }, line(0.5, 1000)},
	{"table KiB", func(s sample) float64 { return s.table }, teeth(0.25, 1024)},
	{"index KiB", func(s sample) float64 { return s.indexes }, teeth(0.25, 1024)},
	{"dead rows", func(s sample) float64 { return s.dead }, teeth(0.25, 5000)},
	{"vacuums", func(s sample) float64 { return s.vacuums }, nil},
	{"claims", func(s sample) float64 { return s.claims }, line(0.25, 1000)},
	{"RSS MiB", func(s sample) float64 { return s.resident }, line(0.1, 8)},
	{"goroutines", func(s sample) float64 { return s.goroutines }, line(0.05, 5)},
	{"connections", func(s sample) float64 { return s.connections }, line(0.25, 4)},
}

func line(share, least float64) func(series, vacuums []float64) trend.Verdict {
	return func(series, _ []float64) trend.Verdict {
		return trend.Line(series, trend.Tolerance{Share: share, Least: least})
	}
}

func teeth(share, least float64) func(series, vacuums []float64) trend.Verdict {
	return func(series, vacuums []float64) trend.Verdict {
		return trend.Teeth(series, vacuums, trend.Tolerance{Share: share, Least: least})
	}
}

// sample is what one look has seen, in the units of the columns.
type sample struct {
	rate, backlog, oldest, table, indexes, dead, vacuums, claims, resident, goroutines, connections float64
}

// series is all looks.
type series struct{ samples []sample }

// look takes a sample an interval until ctx ends, and prints it.
func (s *series) look(ctx context.Context, config Config, line *flow) error {
	table := tabwriter.NewWriter(config.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	names := []string{"minute"}
	for _, c := range columns {
		names = append(names, c.name)
	}
	row(table, names)
	again := time.NewTicker(config.Interval)
	defer again.Stop()
	started, last, handled := time.Now(), time.Now(), int64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
		now, total := time.Now(), line.handled.Load()
		next, err := take(context.WithoutCancel(ctx), line)
		if err != nil {
			return fmt.Errorf("look at the database: %w", err)
		}
		next.rate = float64(total-handled) / now.Sub(last).Seconds()
		last, handled = now, total
		s.samples = append(s.samples, next)
		fields := []string{strconv.FormatFloat(now.Sub(started).Minutes(), 'f', 1, 64)}
		for _, c := range columns {
			fields = append(fields, strconv.FormatFloat(c.value(next), 'f', 0, 64))
		}
		row(table, fields)
	}
}

// row is printed at once, each field as wide as the widest name.
func row(table *tabwriter.Writer, fields []string) {
	for i, field := range fields {
		fields[i] = fmt.Sprintf("%11s", field)
	}
	fmt.Fprintln(table, strings.Join(fields, "\t")+"\t")
	_ = table.Flush() // a report that cannot be printed
}

func take(ctx context.Context, line *flow) (sample, error) {
	pending, err := line.where.Pending(ctx)
	if err != nil {
		return sample{}, err
	}
	gauge, err := line.where.Gauge(ctx)
	if err != nil {
		return sample{}, err
	}
	resident, err := residentBytes()
	if err != nil {
		return sample{}, err
	}
	const kibi, mebi = 1 << 10, 1 << 20
	return sample{
		backlog: float64(pending.Messages), oldest: float64(pending.Oldest.Milliseconds()),
		table: float64(gauge.Table) / kibi, indexes: float64(gauge.Indexes) / kibi,
		dead: float64(gauge.DeadRows), vacuums: float64(gauge.Vacuums), claims: float64(gauge.Claims),
		resident: resident / mebi, goroutines: float64(runtime.NumGoroutine()), connections: float64(gauge.Connections),
	}, nil
}

// residentBytes is the memory that the process has of the machine, as Linux knows it.
func residentBytes() (float64, error) {
	file, err := os.Open("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("resident memory is known on Linux: %w", err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(file)
	if err != nil {
		return 0, err
	}
	var size, pages float64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, fmt.Errorf("read /proc/self/statm: %w", err)
	}
	return pages * float64(os.Getpagesize()), nil
}

// judge names the columns that rise, and those that the run was too short for.
func (s *series) judge() (rising, unjudged []string) {
	vacuums := s.of(func(s sample) float64 { return s.vacuums })
	for _, c := range columns {
		if c.judge == nil {
			continue
		}
		name := strings.ReplaceAll(c.name, " ", "_")
		switch c.judge(s.of(c.value), vacuums) {
		case trend.Rising:
			rising = append(rising, name)
		case trend.Unjudged:
			unjudged = append(unjudged, name)
		case trend.Steady:
		}
	}
	return rising, unjudged
}

func (s *series) of(value func(s sample) float64) []float64 {
	values := make([]float64, len(s.samples))
	for i, sample := range s.samples {
		values[i] = value(sample)
	}
	return values
}
