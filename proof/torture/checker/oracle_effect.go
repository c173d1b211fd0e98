package checker

import "github.com/postbox-go/watermill-postbox/proof/torture/history"

// effectsAreSingle: at most one effect for a message and consumer, however often it came, and
// whoever held its lane. An effect that was committed under a lost token shows here, as the second
// one.
func effectsAreSingle(x *index, found findings) {
	for _, e := range x.Database.Effects {
		if all := x.at(e.Consumer, e.Message).effects; len(all) > 1 && all[0].ID == e.ID {
			found(e.Message, "has %d effects at %s", len(all), e.Consumer)
		}
	}
}

// effectsBelong: an effect is of the consumer's topic, and has the key and the turn of its message.
// Messages that are taken for each other show here.
func effectsBelong(x *index, found findings) {
	for _, e := range x.Database.Effects {
		i, there := x.intents[e.Message]
		if !there {
			continue // which is for another oracle
		}
		if flow := x.flows[e.Consumer]; e.Topic != i.Topic || flow.Topic != i.Topic {
			found(e.Message, "of topic %s has effect %d at %s, which is of topic %s", i.Topic, e.ID, e.Consumer, e.Topic)
		} else if e.Key != i.Key || e.Turn != i.Turn {
			found(e.Message, "is turn %d of key %q, and effect %d is of turn %d of key %q", i.Turn, i.Key, e.ID, e.Turn, e.Key)
		}
	}
}

// appliedHasEffect: what a consumer was told to be committed is in the database, unless a failover
// has lost it.
func appliedHasEffect(x *index, found findings) {
	told := map[Work]bool{}
	for _, r := range x.Records {
		w := Work{r.Consumer, r.Message}
		lost := x.isLost(w, confirmation{r.Kind, r.Process, r.System})
		if r.Kind == history.Applied && !lost && !told[w] && len(x.works[w].effects) == 0 {
			told[w] = true
			found(r.Message, "was applied by %s, says %s, and the effect is not there", r.Consumer, r.Process)
		}
	}
}

// failuresLeaveNothing: the handlers of poison write their effect, and then fail; until it is
// healed, none may stay.
func failuresLeaveNothing(x *index, found findings) {
	for _, e := range x.Database.Effects {
		if i, there := x.intents[e.Message]; there && i.Plan == history.Poison && !x.of(e.Message).healed {
			found(e.Message, "is poison, and effect %d of its failed handler at %s stayed", e.ID, e.Consumer)
		}
	}
}

// followUpsBelong: what a handler emits is committed if and only if its effect is. That it then
// goes its way is for the oracles of all messages.
func followUpsBelong(x *index, found findings) {
	told := map[Work]bool{}
	for _, e := range x.Database.Effects {
		flow, w := x.flows[e.Consumer], Work{e.Consumer, e.Message}
		if flow.Emits == "" || told[w] {
			continue
		}
		told[w] = true
		if n := len(x.emitted[w]); n == 0 {
			found(e.Message, "has effect %d at %s, and the message that belongs to it was not emitted", e.ID, e.Consumer)
		} else if effects := len(x.works[w].effects); n > effects {
			found(e.Message, "has %d effects at %s, which emitted %d messages", effects, e.Consumer, n)
		}
	}
	for _, i := range x.Database.Intents {
		if i.Parent == "" {
			continue
		}
		if len(x.at(i.Emitter, i.Parent).effects) == 0 {
			found(i.Message, "was emitted by %s for %s, which has no effect there", i.Emitter, i.Parent)
		} else if want := x.flows[i.Emitter].Emits; i.Topic != want {
			found(i.Message, "was emitted by %s to topic %q instead of %q", i.Emitter, i.Topic, want)
		}
	}
}
