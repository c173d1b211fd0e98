package report

import (
	"image/color"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

func picture(g Group) string { return g.Name + ".svg" }

// Sizes of a picture.
const (
	height      = 2.6 * vg.Inch
	barWidth    = 0.35 * vg.Inch
	barSpace    = 1.3 * vg.Inch
	curveWidth  = 5 * vg.Inch
	margin      = vg.Inch
	headroom    = 1.1
	pointRadius = vg.Length(3)
)

// fill lets the whiskers be seen on the bars.
var fill = color.RGBA{R: 0x8f, G: 0xb8, B: 0xde, A: 0xff}

// draw makes a picture of each group.
func (s *Summary) draw(folder string) error {
	const mode = 0o755
	if err := os.MkdirAll(folder, mode); err != nil {
		return err
	}
	for _, g := range s.Groups {
		if err := g.draw(filepath.Join(folder, picture(g))); err != nil {
			return err
		}
	}
	return nil
}

// draw shows medians, and from the worst to the best round, as bars or as a curve.
func (g Group) draw(path string) error {
	p := plot.New()
	p.Title.Text = g.Name
	p.Y.Label.Text = string(g.Picture)
	p.Y.Min = 0
	p.Y.Max = headroom * g.most()
	var err error
	width := curveWidth
	if g.Axis == "" {
		width = margin + barSpace*vg.Length(len(g.Series))
		err = g.bars(p)
	} else {
		err = g.curve(p)
	}
	if err != nil {
		return err
	}
	return p.Save(width, height, path)
}

// most is the largest value of a round.
func (g Group) most() float64 {
	var most float64
	for _, series := range g.Series {
		_, best := series.Range(g.Picture)
		most = max(most, best)
	}
	return most
}

func (g Group) bars(p *plot.Plot) error {
	names := make([]string, len(g.Series))
	values := make(plotter.Values, len(g.Series))
	for i, series := range g.Series {
		names[i] = series.Contender
		values[i], _ = series.Median(g.Picture)
	}
	bars, err := plotter.NewBarChart(values, barWidth)
	if err != nil {
		return err
	}
	bars.Color = fill
	p.Add(bars)
	p.NominalX(names...)
	whiskers, err := plotter.NewYErrorBars(g.points(func(i int, _ measure.Series) float64 { return float64(i) }))
	if err != nil {
		return err
	}
	p.Add(whiskers)
	return nil
}

func (g Group) curve(p *plot.Plot) error {
	points := g.points(func(_ int, series measure.Series) float64 {
		x, _ := strconv.ParseFloat(series.Contender, 64) // by the word of the scenario
		return x
	})
	line, scatter, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	scatter.Shape, scatter.Radius = draw.CircleGlyph{}, pointRadius
	whiskers, err := plotter.NewYErrorBars(points)
	if err != nil {
		return err
	}
	p.X.Label.Text = g.Axis
	p.X.Tick.Marker = ticks(points)
	p.Add(line, scatter, whiskers)
	if least, most, _, _ := plotter.XYRange(points); most > linear*least {
		p.X.Scale = plot.LogScale{}
	} else {
		p.X.Min = 0
	}
	return nil
}

// linear is how many times the first the last point of an axis may be, lest those in between cannot
// be told apart.
const linear = 10

// ticks stand at the points.
func ticks(points points) plot.ConstantTicks {
	var list plot.ConstantTicks
	for _, point := range points.XYs {
		list = append(list, plot.Tick{Value: point.X, Label: strconv.FormatFloat(point.X, 'f', -1, 64)})
	}
	return list
}

// points are medians with their worst and best rounds.
type points struct {
	plotter.XYs
	plotter.YErrors
}

func (g Group) points(x func(i int, series measure.Series) float64) points {
	var list points
	for i, series := range g.Series {
		median, _ := series.Median(g.Picture)
		least, most := series.Range(g.Picture)
		list.XYs = append(list.XYs, plotter.XY{X: x(i, series), Y: median})
		list.YErrors = append(list.YErrors, struct{ Low, High float64 }{median - least, most - median})
	}
	return list
}
