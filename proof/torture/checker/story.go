package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/torture/history"
)

const (
	// neighbours is how many turns of the key before and after a message are part of its story.
	neighbours = 1
	// maxLines bounds a story: so many lines of its beginning, and as many of its end.
	maxLines = 120
	// byDatabase is who speaks in the lines that come from its rows.
	byDatabase = "database"
)

// event is a line of a story.
type event struct {
	at   time.Time
	who  string
	what string
}

// story tells all that is known of a message and of its neighbours under its key: the records of
// all processes, each process's in its own order, and the rows of the database, merged by time. The
// clocks of processes are put right as far as [Evidence.Skew] knows.
func (x *index) story(message string) string {
	told := x.cast(message)
	events := append(x.spoken(told), x.written(told)...)
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	lines := make([]string, len(events))
	for n, e := range events {
		lines[n] = fmt.Sprintf("  %s  %-18s %s\n", e.at.UTC().Format("15:04:05.000000"), e.who, e.what)
	}
	if left := len(lines) - 2*maxLines; left > 0 {
		gap := fmt.Sprintf("  … %d lines left out\n", left)
		lines = slices.Concat(lines[:maxLines], []string{gap}, lines[len(lines)-maxLines:])
	}
	return "The story of " + message + ", with its neighbours:\n" + strings.Join(lines, "")
}

// cast returns the message, its neighbours, and whose message it is or who are its messages.
func (x *index) cast(message string) map[string]bool {
	cast := map[string]bool{message: true}
	self, there := x.intents[message]
	for _, i := range x.Database.Intents {
		near := there && self.Key != "" && i.Key == self.Key && i.Topic == self.Topic &&
			i.Turn >= self.Turn-neighbours && i.Turn <= self.Turn+neighbours
		if near || i.Parent == message || there && i.Message == self.Parent {
			cast[i.Message] = true
		}
	}
	return cast
}

// spoken returns what processes said of the messages, and the faults between.
func (x *index) spoken(cast map[string]bool) []event {
	var events []event
	var from, to time.Time
	latest := map[string]time.Time{}
	var faults []event
	for _, r := range x.Records {
		at := r.At.Add(-x.skew(r.Process))
		if at.Before(latest[r.Process]) { // a clock that was put back must not change the order of the file
			at = latest[r.Process]
		}
		latest[r.Process] = at
		e := event{at: at, who: fmt.Sprintf("%s:%d", r.Process, r.Line), what: x.describe(r)}
		switch {
		case r.Kind == history.Fault:
			faults = append(faults, e)
		case cast[r.Message]:
			events = append(events, e)
			if from.IsZero() || at.Before(from) {
				from = at
			}
			if at.After(to) {
				to = at
			}
		}
	}
	for _, f := range x.Failovers {
		faults = append(faults, event{f.Moved, "driver", f.Kind + ": from now on clients reach the new primary"})
	}
	for _, f := range faults {
		if !f.at.Before(from) && !f.at.After(to) {
			events = append(events, f)
		}
	}
	return events
}

// skew returns how far the clock of an incarnation of a process is ahead.
func (x *index) skew(process string) time.Duration {
	name, _, _ := strings.Cut(process, "/")
	return x.Skew[name]
}

func (x *index) describe(r history.Record) string {
	words := []string{string(r.Kind)}
	if r.Message != "" {
		words = append(words, x.described(r.Message))
	}
	if r.Consumer != "" {
		words = append(words, "by "+r.Consumer)
	}
	if r.Outage {
		words = append(words, "(outage)")
	}
	if r.Detail != "" {
		words = append(words, "· "+r.Detail)
	}
	return strings.Join(words, " ")
}

// described names a message, with its place under its key.
func (x *index) described(message string) string {
	i, there := x.intents[message]
	if !there {
		return message
	}
	return fmt.Sprintf("%s [%s %s#%d %s]", message, i.Topic, i.Key, i.Turn, i.Plan)
}

// written returns the rows of the messages.
func (x *index) written(cast map[string]bool) []event {
	var events []event
	tell := func(message string, at time.Time, format string, args ...any) {
		if cast[message] {
			events = append(events, event{at: at, who: byDatabase, what: fmt.Sprintf(format, args...) + " " + x.described(message)})
		}
	}
	for _, i := range x.Database.Intents {
		origin := ""
		if i.Parent != "" {
			origin = fmt.Sprintf(", emitted by %s for %s:", i.Emitter, i.Parent)
		}
		tell(i.Message, i.At, "intent %d%s", i.ID, origin)
	}
	for _, e := range x.Database.Effects {
		tell(e.Message, e.At, "effect %d at %s by %s", e.ID, e.Consumer, e.Process)
	}
	for _, p := range x.Database.Pending {
		tell(p.Message, p.Created, "stored in %s since then as %d, state %d, %d attempts", nameOf(p.Queue), p.ID, p.State, p.Attempts)
	}
	for _, l := range x.Database.Letters {
		tell(l.Message, l.Died, "dead letter %d of %s after %d attempts: %s", l.ID, nameOf(l.Consumer), l.Attempts, l.Error)
	}
	for _, k := range x.Database.Kept {
		tell(k.Message, k.Done, "done in %s, kept as %d", nameOf(k.Queue), k.ID)
	}
	for _, i := range x.Database.Intents {
		for _, flow := range x.topics[i.Topic] {
			for _, f := range x.failures[Work{flow.Consumer, i.Message}] {
				tell(i.Message, f.At, "attempt %d at %s failed, in %s: %s", f.Attempt, flow.Consumer, f.Process, f.Error)
			}
		}
	}
	return events
}
