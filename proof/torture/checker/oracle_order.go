package checker

import "github.com/postbox-go/watermill-postbox/proof/torture/history"

// lineOf is one consumer's, or one process's, sequence of a key in a topic.
type lineOf struct{ who, topic, key string }

// effectsKeepOrder: in flows that promise it, a key's first effects come in the order of its turns.
// Later effects of the same message are for another oracle. Messages that were requeued have lost
// their turn; dead ones leave gaps.
func effectsKeepOrder(x *index, found findings) {
	last, seen := map[lineOf]Effect{}, map[Work]bool{}
	for _, e := range x.Database.Effects {
		w := Work{e.Consumer, e.Message}
		if !x.hasTurn(e.Consumer, e.Message, e.Key) || seen[w] {
			continue
		}
		seen[w] = true
		line := lineOf{e.Consumer, e.Topic, e.Key}
		if before := last[line]; before.Turn > e.Turn {
			found(e.Message, "is turn %d of key %q, and %s applied it after turn %d", e.Turn, e.Key, e.Consumer, before.Turn)
		}
		last[line] = e // also after a violation: one that came too early shall not accuse all the others
	}
}

// hasTurn says whether a message must come in its turn at this consumer. A message that a failover
// has lost has none: the turn is given out again. A work that was acked and then lost comes again,
// if ever, when the broker says so.
func (x *index) hasTurn(consumer, message, key string) bool {
	_, there := x.intents[message]
	return there && x.flows[consumer].Ordered && key != "" && !x.requeued(consumer, message) && !x.lostOnce(Work{consumer, message})
}

// requeued says whether an operator may have given the message another turn, here or in the outbox.
func (x *index) requeued(consumer, message string) bool {
	for _, where := range []string{consumer, ""} {
		if s := x.works[Work{where, message}]; s != nil && s.requeues > 0 {
			return true
		}
	}
	return false
}

// publicationsKeepOrder: no process begins to send a turn for the first time when it has begun a
// later one. More cannot be said: a process that was asleep may send again what another has sent
// long since, and the clocks of two processes cannot be compared. What was sent before a failover
// may be sent again after it, since the mark is lost. What went wrong between two shows in the
// order of effects.
func publicationsKeepOrder(x *index, found findings) {
	type sending struct {
		line    lineOf
		message string
	}
	last, seen := map[lineOf]int64{}, map[sending]bool{}
	first := x.firstSendings()
	for _, r := range x.Records {
		i, there := x.intents[r.Message]
		if r.Kind != history.Sending || !there || i.Key == "" || x.requeuedAnywhere(i) {
			continue
		}
		line := lineOf{r.Process, i.Topic, i.Key}
		s := sending{line, i.Message}
		if seen[s] || first[i.Message] < x.epoch(r.System) {
			continue
		}
		seen[s] = true
		if last[line] > i.Turn {
			found(i.Message, "is turn %d of key %q, and %s began to send it after turn %d", i.Turn, i.Key, r.Process, last[line])
		}
		last[line] = i.Turn
	}
}

// firstSendings returns the epoch in which each message was sent for the first time.
func (x *index) firstSendings() map[string]int {
	first := map[string]int{}
	for _, r := range x.Records {
		if r.Kind != history.Sending {
			continue
		}
		epoch := x.epoch(r.System)
		if before, known := first[r.Message]; !known || epoch < before {
			first[r.Message] = epoch
		}
	}
	return first
}

// requeuedAnywhere says whether the message may have gone through the outbox a second time. An
// inbox's dead letters are requeued that way.
func (x *index) requeuedAnywhere(i Intent) bool {
	for _, f := range x.topics[i.Topic] {
		if x.requeued(f.Consumer, i.Message) {
			return true
		}
	}
	return x.requeued("", i.Message)
}

// deadCameFirst: in flows that promise order, a message holds its key until it is dead: no later
// turn is applied before. Both times are the database's.
func deadCameFirst(x *index, found findings) {
	dead := map[lineOf][]Letter{}
	for _, l := range x.Database.Letters {
		if i, there := x.intents[l.Message]; there && x.hasTurn(l.Consumer, l.Message, i.Key) {
			line := lineOf{l.Consumer, i.Topic, i.Key}
			dead[line] = append(dead[line], l)
		}
	}
	told := map[int64]bool{}
	for _, e := range x.Database.Effects {
		if !x.hasTurn(e.Consumer, e.Message, e.Key) {
			continue
		}
		for _, l := range dead[lineOf{e.Consumer, e.Topic, e.Key}] {
			if turn := x.intents[l.Message].Turn; turn < e.Turn && e.At.Before(l.Died) && !told[l.ID] {
				told[l.ID] = true
				found(l.Message, "is turn %d of key %q and died at %s, %s after turn %d had its effect",
					turn, e.Key, e.Consumer, l.Died.Sub(e.At), e.Turn)
			}
		}
	}
}
