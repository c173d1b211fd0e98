// Package report shows what was measured: as a table, as lines for programs, as a file, and as
// pictures.
package report

import (
	"cmp"
	"encoding/json"
	"os"
	"runtime"
	"time"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// Summary is what a run of the benchmark has found.
type Summary struct {
	Time     time.Time `json:"time"`
	Cores    int       `json:"cores"`
	Go       string    `json:"go"`
	Settings []string  `json:"settings"`
	Rounds   int       `json:"rounds"`
	Quick    bool      `json:"quick"`
	Groups   []Group   `json:"groups"`
}

// Group is what a scenario has found.
type Group struct {
	Name     string           `json:"name"`
	About    string           `json:"about"`
	Picture  measure.Metric   `json:"picture"`
	Axis     string           `json:"axis,omitempty"`
	Noise    float64          `json:"noise"`
	Series   []measure.Series `json:"series"`
	Verdicts []Verdict        `json:"verdicts"`
}

// Verdict is a line for programs.
type Verdict struct {
	Name    string         `json:"name"`
	Ours    string         `json:"ours"`
	Against string         `json:"against"`
	Metric  measure.Metric `json:"metric"`
	Value   float64        `json:"value"`
	Other   float64        `json:"other"`
	Ratio   float64        `json:"ratio"`
	Target  float64        `json:"target"`
	CPU     float64        `json:"cpu_ratio"`
	Rate    float64        `json:"rate_ratio"`
	Noise   float64        `json:"noise"`
	OK      bool           `json:"ok"`
}

// New returns a summary without results.
func New(options measure.Options, settings []string) *Summary {
	return &Summary{
		Time: time.Now().UTC(), Cores: runtime.NumCPU(), Go: runtime.Version(), Settings: settings,
		Rounds: options.Rounds, Quick: options.Quick,
	}
}

// Add notes what a scenario has found.
func (s *Summary) Add(scenario measure.Scenario, series []measure.Series) {
	group := Group{
		Name: scenario.Name, About: scenario.About, Picture: scenario.Picture, Axis: scenario.Axis,
		Noise: scenario.Noise(series), Series: series,
	}
	if group.Picture == "" {
		group.Picture = measure.Rate
	}
	for _, v := range scenario.Judge(series) {
		against := v.Other
		if against == "" {
			against = "limit"
		}
		group.Verdicts = append(group.Verdicts, Verdict{
			Name: v.Name, Ours: v.Ours, Against: against, Metric: v.Metric,
			Value: v.OursValue, Other: v.OtherValue, Ratio: v.Ratio, Target: v.AtLeast, CPU: v.CPURatio, Rate: v.RateRatio, Noise: v.Noise, OK: v.OK,
		})
	}
	s.Groups = append(s.Groups, group)
}

// Save writes the summary to a file.
func (s *Summary) Save(path string) error {
	data, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	const mode = 0o644
	return os.WriteFile(path, append(data, '\n'), mode)
}

// called says what the contenders are called by.
func (g Group) called() string { return cmp.Or(g.Axis, "contender") }
