package crashpoints_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// TestMain ends with the account of all points, and makes sure that a dead process leaves no goroutine behind.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		report.print()
		os.Exit(code)
	}))
}

// account counts points.
type account struct {
	mu    sync.Mutex
	flows map[string]*score
}

// score is what became of the points of a flow on a database. Those that were missed came in the first life, and then,
// however often it was tried, not again: a read in vain more or less.
type score struct{ points, recovered, missed int }

var report = account{flows: map[string]*score{}}

// add gives a flow its place in the report.
func (a *account) add(database, name string) *score {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &score{}
	a.flows[fmt.Sprintf("%-12s %s", database, name)] = s
	return s
}

func (a *account) print() {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for name := range a.flows {
		names = append(names, name)
	}
	slices.Sort(names)
	var text strings.Builder
	var all score
	for _, name := range names {
		s := a.flows[name]
		fmt.Fprintf(&text, "FLOW %-40s points=%d recovered=%d missed=%d\n", name, s.points, s.recovered, s.missed)
		all.points, all.recovered = all.points+s.points, all.recovered+s.recovered
	}
	fmt.Fprintf(&text, "RESULT points=%d recovered=%d\n", all.points, all.recovered)
	fmt.Fprint(os.Stdout, text.String())
}
