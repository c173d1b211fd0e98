package measure

import (
	"context"
	"slices"
	"strconv"
)

// Scenario is a group of contenders that do the same work, in turns, and what is expected of their
// results.
type Scenario struct {
	// Name of the group.
	Name string
	// About says in a sentence what they do.
	About string
	// Contenders in the order in which they take turns.
	Contenders []Contender
	// Targets that this group shows.
	Targets []Target
	// Needs is a variable of the environment without which it cannot run, if any.
	Needs string
	// Log says that it needs a server whose log can be read: one with wal_level=logical, which
	// writes a little more of it.
	Log bool
	// Shared, if set, fills a schema once, for those contenders that say so.
	Shared func(ctx context.Context, stage *Stage) error
	// MaxRounds, if set, bounds the rounds: of what takes long, counts instead of taking time, or
	// uses up what was filled once.
	MaxRounds int
	// Turns of each contender in a round; 0 is one. What is over soon, or is to tell apart little,
	// gets more of them.
	Turns int
	// Picture is the metric that is drawn. Defaults to the rate. With an Axis the contenders are
	// points of a curve, and their names the numbers on that axis.
	Picture Metric
	Axis    string
	// Floor is the contender whose spread tells how much the machine disturbs; "" is the first.
	Floor string
}

// Run does the work once: it prepares, starts the clock, works, and stops the clock.
type Run func(ctx context.Context, stage *Stage) error

// Contender is one way to do the work.
type Contender struct {
	Name string
	// InShared says that it works in the schema that the scenario has filled, and not in an empty
	// one.
	InShared bool
	Run      Run
}

// Curve returns a contender for each point of an axis.
func Curve(points []int, run func(ctx context.Context, stage *Stage, point int) error) []Contender {
	contenders := make([]Contender, len(points))
	for i, point := range points {
		contenders[i] = Contender{Name: strconv.Itoa(point), Run: func(ctx context.Context, stage *Stage) error {
			return run(ctx, stage, point)
		}}
	}
	return contenders
}

// Target is what is expected of one contender against another, or against a limit.
type Target struct {
	// Name of the target, which several may share.
	Name string
	// Ours and Other are the contenders. Without Other, Limit is what ours is compared with.
	Ours, Other string
	// OrElse are others: ours is compared with the one of all these that was best in this run.
	OrElse []string
	Limit  float64
	// Metric that is compared. Defaults to the rate.
	Metric Metric
	// Lower says that less is better; then the ratio is the other's value by ours.
	Lower bool
	// AtLeast is the ratio expected.
	AtLeast float64
	// Paired compares the two in each round, and takes the median of these ratios. It tells apart
	// less than the medians of each contender do.
	Paired bool
}

// Verdict is what became of a target.
type Verdict struct {
	Target
	OursValue, OtherValue float64
	Ratio                 float64
	// CPURatio is how many times the processor time of ours, client and server together, the other
	// one took a message; 0 where that was not measured. Other work on the machine changes it
	// little.
	CPURatio float64
	// RateRatio is the ratio of the rates, round by round; 0 without another contender.
	RateRatio float64
	// Noise is how far the ratio may be wrong: see [uncertainty]; of a target that is not paired,
	// the spread of the floor.
	Noise float64
	OK    bool
}

// Restrict returns the scenario with the targets of these names alone, and the contenders that they
// need. No names are all of them. It reports false where nothing remains.
func (s Scenario) Restrict(names []string) (Scenario, bool) {
	if len(names) == 0 || slices.Contains(names, s.Name) {
		return s, true
	}
	var targets []Target
	needed := map[string]bool{s.Floor: true}
	for _, target := range s.Targets {
		if slices.Contains(names, target.Name) {
			targets = append(targets, target)
			for _, name := range append([]string{target.Ours, target.Other}, target.OrElse...) {
				needed[name] = true
			}
		}
	}
	var contenders []Contender
	for _, contender := range s.Contenders {
		if needed[contender.Name] {
			contenders = append(contenders, contender)
		}
	}
	s.Targets, s.Contenders = targets, contenders
	return s, len(targets) > 0
}

// Judge compares the results with the targets.
func (s Scenario) Judge(results []Series) []Verdict {
	var verdicts []Verdict
	for _, target := range s.Targets {
		if target.Metric == "" {
			target.Metric = Rate
		}
		target.Other = target.best(results)
		ours, measured := of(results, target.Ours).Median(target.Metric)
		other := target.Limit
		if target.Other != "" {
			var ok bool
			other, ok = of(results, target.Other).Median(target.Metric)
			measured = measured && ok
		}
		verdict := Verdict{Target: target, OursValue: ours, OtherValue: other, Noise: s.Noise(results)}
		switch {
		case !measured:
		case target.Paired:
			rounds := pairs(of(results, target.Ours), of(results, target.Other), target.Metric, target.Lower)
			verdict.Ratio, verdict.Noise = median(rounds), uncertainty(rounds)
		case target.Lower && ours > 0:
			verdict.Ratio = other / ours
		case !target.Lower && other > 0:
			verdict.Ratio = ours / other
		}
		verdict.OK = verdict.Ratio >= target.AtLeast
		if cpu, known := of(results, target.Ours).Median(CPU); known {
			others, _ := of(results, target.Other).Median(CPU)
			verdict.CPURatio = others / cpu
		}
		verdict.RateRatio = median(pairs(of(results, target.Ours), of(results, target.Other), Rate, false))
		verdicts = append(verdicts, verdict)
	}
	return verdicts
}

// best returns the contender that ours is compared with.
func (t Target) best(results []Series) string {
	best := t.Other
	for _, name := range t.OrElse {
		value, measured := of(results, name).Median(t.Metric)
		least, _ := of(results, best).Median(t.Metric)
		if measured && (value < least) == t.Lower {
			best = name
		}
	}
	return best
}

// Noise is the spread of the floor.
func (s Scenario) Noise(results []Series) float64 {
	floor := s.Floor
	if floor == "" {
		floor = s.Contenders[0].Name
	}
	return of(results, floor).Spread(Rate)
}

func of(results []Series, contender string) Series {
	for _, series := range results {
		if series.Contender == contender {
			return series
		}
	}
	return Series{Contender: contender}
}
