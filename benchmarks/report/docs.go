package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// Between these lines of a page the tables of the latest run stand.
const (
	begins = "<!-- benchmarks: begin -->\n"
	ends   = "<!-- benchmarks: end -->\n"
)

// WriteDocs puts the tables into the page of this name in that folder, and the pictures into one
// beside it.
func (s *Summary) WriteDocs(folder, page string) error {
	path := filepath.Join(folder, page+".md")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begins)
	_, after, closed := strings.Cut(rest, ends)
	if !found || !closed {
		return fmt.Errorf("%s: no place for the tables: put %q and %q where they belong", path, begins, ends)
	}
	if err := s.draw(filepath.Join(folder, page)); err != nil {
		return err
	}
	const mode = 0o644
	return os.WriteFile(path, []byte(before+begins+s.markdown(page)+ends+after), mode)
}

// markdown is a table of all targets, if there are any, and then one of each group with its picture
// from that folder.
func (s *Summary) markdown(pictures string) string {
	var b strings.Builder
	run := "rounds"
	if s.Quick {
		run = "rounds of a quick run"
	}
	fmt.Fprintf(&b, "Measured on %s, %d cores, %s, %d %s, PostgreSQL with `%s`.\n",
		s.Time.Format("2 January 2006"), s.Cores, s.Go, s.Rounds, run, strings.Join(s.Settings, "`, `"))
	s.targets(&b)
	for _, g := range s.Groups {
		fmt.Fprintf(&b, "\n### %s\n\n%s.\n\n![%s](%s)\n\n", g.Name, sentence(g.About), g.Name, pictures+"/"+picture(g))
		g.markdown(&b)
	}
	return b.String()
}

func (s *Summary) targets(b *strings.Builder) {
	header := "\n| target | what | against | ratio | expected | reached | noise |\n| --- | --- | --- | --- | --- | --- | --- |\n"
	for _, g := range s.Groups {
		for _, v := range g.Verdicts {
			against := fmt.Sprintf("%s: %s", v.Against, number(v.Other))
			fmt.Fprintf(b, "%s| %s | %s: %s %s | %s | %s | ≥ %s | %s | %s |\n", header,
				v.Name, v.Ours, number(v.Value), v.Metric, against, number(v.Ratio), number(v.Target), yes(v.OK), percent(v.Noise))
			header = ""
		}
	}
}

func (g Group) markdown(b *strings.Builder) {
	metrics := g.metrics()
	b.WriteString("| " + g.called() + " |")
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
