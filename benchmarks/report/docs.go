package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// Between these lines of the page the tables of the latest run stand.
const (
	page   = "performance.md"
	begins = "<!-- benchmarks: begin -->\n"
	ends   = "<!-- benchmarks: end -->\n"
)

// WriteDocs puts the tables into the page in that folder, and the pictures beside it.
func (s *Summary) WriteDocs(folder string) error {
	path := filepath.Join(folder, page)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begins)
	_, after, closed := strings.Cut(rest, ends)
	if !found || !closed {
		return fmt.Errorf("%s: no place for the tables: put %q and %q where they belong", path, begins, ends)
	}
	if err := s.draw(filepath.Join(folder, pictures)); err != nil {
		return err
	}
	const mode = 0o644
	return os.WriteFile(path, []byte(before+begins+s.markdown()+ends+after), mode)
}

// markdown is a table of all targets, and then one of each group with its picture.
func (s *Summary) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured on %s, %d cores, %s, %d rounds, PostgreSQL with `%s`.\n\n",
		s.Time.Format("2 January 2006"), s.Cores, s.Go, s.Rounds, strings.Join(s.Settings, "`, `"))
	b.WriteString("| target | what | against | ratio | expected | reached | noise |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, g := range s.Groups {
		for _, v := range g.Verdicts {
			against := fmt.Sprintf("%s: %s", v.Against, number(v.Other))
			fmt.Fprintf(&b, "| %s | %s: %s %s | %s | %.2f | ≥ %s | %s | %.0f %% |\n",
				v.Name, v.Ours, number(v.Value), v.Metric, against, v.Ratio, number(v.Target), yes(v.OK), 100*g.Noise) //nolint:mnd // per cent
		}
	}
	for _, g := range s.Groups {
		fmt.Fprintf(&b, "\n### %s\n\n%s.\n\n![%s](%s)\n\n", g.Name, sentence(g.About), g.Name, pictures+"/"+picture(g))
		g.markdown(&b)
	}
	return b.String()
}

func (g Group) markdown(b *strings.Builder) {
	metrics := g.metrics()
	b.WriteString("| contender |")
	for _, metric := range metrics {
		fmt.Fprintf(b, " %s |", metric)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(metrics)) + "\n")
	for _, series := range g.Series {
		b.WriteString("| " + series.Contender + " |")
		for _, metric := range metrics {
			b.WriteString(" " + cell(series, metric) + " |")
		}
		b.WriteString("\n")
	}
}

func cell(series measure.Series, metric measure.Metric) string {
	value, ok := series.Median(metric)
	if !ok {
		return ""
	}
	return number(value)
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "**no**"
}

// sentence begins with a capital letter.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
