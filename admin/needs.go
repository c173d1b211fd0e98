package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Need is a trouble of an outbox, a queue or an inbox, for an operator to look at.
type Need struct {
	QueueInfo
	// Trouble is the name of the trouble: processes, outages, services, calls, keys, parked, late,
	// paused, topics, pauses or letters.
	Trouble string
	// Urgent says that messages do not go on now, whatever else is done.
	Urgent bool
	// Text says what is wrong, behind the name of the target, and Advice what to do about it.
	Text, Advice string
	// Command has the arguments with which the program postbox shows more, or helps. The last one
	// is a name, and may have any bytes.
	Command []string
}

// troubles are in the order of urgency.
var troubles = []string{"processes", "outages", "services", "calls", "keys", "parked", "late", "paused", "topics", "pauses", "letters"}

// lateAfter is for how long messages may be due.
const lateAfter = 5 * time.Minute

// Needs lists what an operator should look at, the most urgent first. What follows from an outage
// is not listed beside it: an outage of many topics is one need, and its keys are not stuck.
// Messages that wait for their time, or behind a pause, are not late.
func Needs(queues []QueueInfo) (all []Need) {
	for _, q := range queues {
		all = append(all, q.needs()...)
	}
	order := func(n Need) int { return slices.Index(troubles, n.Trouble) }
	slices.SortFunc(all, func(a, b Need) int {
		return cmp.Or(order(a)-order(b), kind(a.Target)-kind(b.Target), cmp.Compare(a.Target.Name, b.Target.Name))
	})
	return all
}

func (q QueueInfo) needs() (all []Need) {
	add := func(trouble, command, advice, text string, args ...any) {
		of := "--" + q.Target.Kind
		if q.Target.Kind == spool.KindInbox {
			of = "--consumer"
		}
		all = append(all, Need{q, trouble, trouble == "processes" || trouble == "outages", fmt.Sprintf(text, args...), advice, append(strings.Fields(command), of, q.Target.Name)})
	}
	away := len(q.Outages) > 0 && q.Pending > 0 // the last heartbeats tell of an outage that is over
	paused, hangs := !q.Pause.Since.IsZero(), q.LongCall != nil && q.LongCall.Hangs
	if q.Processes == 0 && q.Due > 0 {
		advice := "Run a forwarder with this name in forwarder.Config.Outbox, or correct PublisherConfig.Outbox."
		if q.Target.Kind == spool.KindQueue {
			advice = "Run a queue.Subscriber or a queue.Batch of this queue, or correct the name where messages are deferred."
		}
		add("processes", "lanes --members", advice, "has %s and no process that handles them.", amountOf(q.Pending, "message"))
	}
	if away {
		add("outages", "messages list --status retrying", "It is tried again by itself, every 30 s at least unless ProbeMax is longer, and no attempt is counted. Bring back what is away, or correct the topic or the rights on it. To try at once, let one of them run now.", "%s", q.away())
	}
	if len(q.Work) > 1 {
		add("services", "lanes --members", "If that is no deployment, give each service a name of its own for it, or a prefix.", "is shared by processes that do different things with its messages: %s.", strings.Join(q.Work, "; "))
	}
	if hangs {
		add("calls", fmt.Sprintf("messages show %d", q.LongCall.ID), "If it does not take that long by design, take a goroutine dump of the process, which ends it, give the call a time-out, and start it again.",
			"may hang: a call in process %.60s has not returned since %s, with message %d.", q.LongCall.Process, utcText(q.LongCall.Since), q.LongCall.ID)
	}
	if q.StuckKeys > 0 && !away {
		add("keys", "keys stuck", "Later messages of a key wait behind the one that has failed: if that can be handled now, run it; if it never can, bury it.", "has %s, the first for %s.", amountOf(q.StuckKeys, "stuck key"), q.StuckAge.Round(time.Second))
	}
	if q.Parked > 0 {
		holds := map[bool]string{true: "holds up its key", false: "hold up their keys"}[q.Parked == 1]
		add("parked", "messages list --status parked", "Run them now, or bury them.", "has %s that used up all attempts and %s.", amountOf(q.Parked, "message"), holds)
	}
	if q.DueAge > lateAfter && len(all) == 0 && q.Processes > 0 && !paused && q.PausedTopics+q.PausedKeys == 0 {
		add("late", "tail", "See what is handled: if it is slow, start more processes or raise the concurrency.", "is late: its first message has been due for %s.", q.DueAge.Round(time.Second))
	}
	if paused {
		add("paused", "resume", "", "has been paused since %s, with %s pending.", q.Pause.text(), amountOf(q.Pending, "message"))
	}
	if q.PausedTopics > 0 {
		add("topics", "topics list", "Resume them when their time is over.", "has %s.", amountOf(q.PausedTopics, "paused topic"))
	}
	if q.PausedKeys > 0 {
		add("pauses", "keys list", "Resume them when their time is over.", "has %s.", amountOf(q.PausedKeys, "paused key"))
	}
	if q.Dead > 0 {
		rise := map[bool]string{true: fmt.Sprintf(", %d in the last ten minutes", q.DeadLately)}[q.DeadLately > 0]
		add("letters", "dead groups", "Each group has failed in one way: requeue, resolve or delete it.", "has %s%s.", amountOf(q.Dead, "dead letter"), rise)
	}
	return all
}

// away says what is away, since when, and how much waits for it.
func (q QueueInfo) away() string {
	what := "has a handler that reports an outage"
	switch topics := len(q.Outages); {
	case q.Target.Kind == spool.KindQueue:
	case topics == 1:
		what = fmt.Sprintf("cannot reach the broker for topic %.60s", q.Outages[0].Topic)
	default:
		what = fmt.Sprintf("cannot reach the broker for %d topics", topics)
	}
	since := slices.MinFunc(q.Outages, func(a, b Outage) int { return a.Since.Compare(b.Since) }).Since
	waits := map[bool]string{true: "waits", false: "wait"}[q.Pending == 1]
	return fmt.Sprintf("%s since %s, for %s. %s %s: none is lost.%s", what, utcText(since), time.Since(since).Round(time.Second), amountOf(q.Pending, "message"), waits, q.nextTry())
}

// nextTry says when the first message tries whether an outage is over, unless one may be trying.
func (q QueueInfo) nextTry() string {
	next := slices.MinFunc(q.Outages, func(a, b Outage) int { return a.Next.Compare(b.Next) }).Next
	if left := time.Until(next).Round(time.Second); left > 0 {
		return fmt.Sprintf(" The next try is in %s.", left)
	}
	return ""
}

func utcText(at time.Time) string { return at.UTC().Format(time.DateTime) + " UTC" }

// amountOf is a number with its noun. Of messages, no more than some are counted.
func amountOf(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case n > CountedUpTo:
		return fmt.Sprintf("%d+ %ss", CountedUpTo, noun)
	default:
		return fmt.Sprintf("%d %ss", n, noun)
	}
}

// Seen says whether an outbox has a message of this topic now: among the first 10,000 that are
// pending, the latest 1,000 of the history, or 10,000 dead letters. Otherwise the name of the topic
// may be misspelt.
func (a *Admin) Seen(ctx context.Context, target Target, topic string) (bool, error) {
	pending, _, err := a.Messages(ctx, Filter{Target: target, Topic: topic, Limit: 1})
	if err != nil || len(pending) > 0 {
		return len(pending) > 0, err
	}
	done, _, err := a.Messages(ctx, Filter{Target: target, Status: Done, Limit: maxLimit})
	if err != nil || slices.ContainsFunc(done, func(m Message) bool { return m.Topic == topic }) {
		return err == nil, err
	}
	if target.Kind == spool.KindInbox {
		return false, nil
	}
	letters, _, err := a.DeadLetters(ctx, Filter{Target: target, Topic: topic, Resolved: "any", Limit: 1})
	return len(letters) > 0, err
}
