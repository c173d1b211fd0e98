package checker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postbox-go/watermill-postbox/proof/torture/history"
)

// maxExamples is how many violations of one oracle a report names; it counts them all.
const maxExamples = 5

// Violation is one thing that is wrong.
type Violation struct {
	Oracle string
	// Message is the message that it is about, "" where it is about none.
	Message string
	Text    string
}

func (v Violation) String() string {
	if v.Message == "" {
		return v.Text
	}
	return v.Message + " " + v.Text
}

// Counts say what there was.
type Counts struct {
	Processes, Records, Faults int
	// Intents are the committed messages, Published those of them that a broker accepted.
	Intents, Published int
	// Applied are the messages with an effect, for each consumer; Duplicates the deliveries that
	// had none.
	Applied, Duplicates int
	// Failed are the runs of handlers that failed, Outages those for which they were not to blame,
	// Unfinished those of which nobody knows the end.
	Failed, Outages, Unfinished int
	Dead, Requeued, Pending     int
	// Tailed are the messages that forwarders took from the log of the database.
	Tailed int
	// Strangers are failures in the database of which nobody knows whose they are: their messages
	// are done.
	Strangers int

	// LostIntents are the committed messages that failovers have lost, LostWorks what they have
	// lost of the work on others.
	Failovers, LostIntents, LostWorks int

	Lost, AppliedTwice, OrderViolations int
}

// Report is the judgement on a run.
type Report struct {
	Counts   Counts
	Accounts []Account
	// Violations are some of each oracle, in the order of the oracles; Total counts all of them by
	// oracle.
	Violations []Violation
	Total      map[string]int
	// Story is that of the first message that something is wrong with.
	Story string
}

// Check judges a run.
func Check(e Evidence) Report {
	x := newIndex(e)
	r := Report{Total: map[string]int{}}
	for _, o := range oracles {
		o.check(x, func(message, format string, args ...any) {
			if r.Total[o.name]++; r.Total[o.name] <= maxExamples {
				r.Violations = append(r.Violations, Violation{Oracle: o.name, Message: message, Text: fmt.Sprintf(format, args...)})
			}
		})
	}
	r.Counts, r.Accounts = x.counts(), x.accounts()
	r.Counts.Lost = r.Total[nothingLost] + r.Total[published] + r.Total[storedIsKept]
	r.Counts.AppliedTwice = r.Total[effectOnce]
	r.Counts.OrderViolations = r.Total[orderOfEffects] + r.Total[orderOfSending] + r.Total[deadHoldTheirKey]
	first := slices.IndexFunc(r.Violations, func(v Violation) bool { return v.Message != "" })
	if first >= 0 {
		r.Story = x.story(r.Violations[first].Message)
	}
	return r
}

// OK says that nothing is wrong.
func (r Report) OK() bool { return len(r.Violations) == 0 }

func (x *index) counts() Counts {
	c := Counts{
		Records: len(x.Records), Faults: x.faults, Intents: len(x.intents), Strangers: x.strangers,
		Dead: len(x.Database.Letters), Pending: len(x.Database.Pending),
	}
	processes := map[string]bool{}
	for _, r := range x.Records {
		processes[r.Process] = true
		switch r.Kind {
		case history.Duplicate:
			c.Duplicates++
		case history.Requeued:
			c.Requeued++
		case history.Tailed:
			c.Tailed += r.Number
		default: // counted by message
		}
	}
	c.Processes = len(processes)
	for message := range x.intents {
		c.Published += min(1, x.of(message).sent)
	}
	c.Failovers = len(x.Failovers)
	for message, s := range x.said {
		if _, lost := x.lostIntent(message); lost && s.committed {
			c.LostIntents++
		}
	}
	for w, s := range x.works {
		if _, there := x.intents[w.Message]; there && x.lostAll(w) && len(s.effects) == 0 {
			c.LostWorks++
		}
		c.Applied += min(1, len(s.effects))
		c.Failed += s.failed
		c.Outages += s.outages
		c.Unfinished += s.unfinished()
	}
	return c
}

// String is for people: the counts, what is wrong, and the story.
func (r Report) String() string {
	var text strings.Builder
	c := r.Counts
	fmt.Fprintf(&text, "%d records of %d processes, %d faults\n", c.Records, c.Processes, c.Faults)
	fmt.Fprintf(&text, "intents %d · published %d · applied %d · duplicates absorbed %d\n", c.Intents, c.Published, c.Applied, c.Duplicates)
	fmt.Fprintf(&text, "runs failed %d, met an outage %d, did not end %d · dead letters %d, requeued %d · still waiting %d\n",
		c.Failed, c.Outages, c.Unfinished, c.Dead, c.Requeued, c.Pending)
	fmt.Fprintf(&text, "rows that the log told of: %d\n", c.Tailed)
	fmt.Fprintf(&text, "failures in the database of messages that are gone: %d\n", c.Strangers)
	if c.Failovers > 0 {
		fmt.Fprintf(&text, "failovers %d, which lost %d committed messages, and %d works on messages that are there\n",
			c.Failovers, c.LostIntents, c.LostWorks)
	}
	for _, a := range r.Accounts {
		fmt.Fprintf(&text, "  %-12s written %d = done %d + pending %d + dead %d", a.Consumer, a.Written, a.Done, a.Pending, a.Dead)
		if a.Underway > 0 {
			fmt.Fprintf(&text, " + not there %d", a.Underway)
		}
		text.WriteByte('\n')
	}
	for _, o := range oracles {
		if n := r.Total[o.name]; n > 0 {
			fmt.Fprintf(&text, "VIOLATED %s (%s): %d\n", o.name, o.holds, n)
			r.examples(&text, o.name, n)
		}
	}
	text.WriteString(r.Story)
	return text.String()
}

func (r Report) examples(text *strings.Builder, oracle string, total int) {
	for _, v := range r.Violations {
		if v.Oracle == oracle {
			fmt.Fprintf(text, "  %s\n", v)
		}
	}
	if total > maxExamples {
		fmt.Fprintf(text, "  and %d more\n", total-maxExamples)
	}
}
