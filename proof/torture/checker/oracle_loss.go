package checker

import "github.com/postbox-go/watermill-postbox/proof/torture/history"

// nothingIsLost: each message that is committed has its effect at each consumer of its topic, or is
// a dead letter, or still waits, which is for another oracle. If failovers have lost all that was
// ever confirmed of it, the broker has heard an ack for a work that no database knows of any more.
func nothingIsLost(x *index, found findings) {
	for _, i := range x.Database.Intents {
		for _, f := range x.topics[i.Topic] {
			if x.outbox[i.Message] == 0 && !x.isSomewhere(f.Consumer, i.Message) && !x.lostAll(Work{f.Consumer, i.Message}) {
				found(i.Message, "is lost to %s: no effect, no dead letter, and it waits nowhere", f.Consumer)
			}
		}
	}
}

// isSomewhere says whether a message that reached a consumer has been applied there, is dead, or
// waits.
func (x *index) isSomewhere(consumer, message string) bool {
	s := x.at(consumer, message)
	return len(s.effects)+len(s.letters)+len(s.pending) > 0
}

// everythingIsPublished: a message leaves the outbox by being accepted, or by dying. The mark
// follows the broker's answer, and Sent is written before it, so a kill in between cannot hide it.
func everythingIsPublished(x *index, found findings) {
	for _, i := range x.Database.Intents {
		if x.outbox[i.Message] == 0 && x.of(i.Message).sent == 0 {
			found(i.Message, "has left the outbox, and no forwarder got a broker to accept it")
		}
	}
}

// storedStays: what a queue was said to hold was acked to the broker, and will not come again. A
// failover may lose it.
func storedStays(x *index, found findings) {
	told := map[Work]bool{}
	for _, r := range x.Records {
		w := Work{r.Consumer, r.Message}
		if r.Kind != history.Stored || x.isLost(w, confirmation{r.Kind, r.Process, r.System}) {
			continue
		}
		if !told[w] && !x.isSomewhere(r.Consumer, r.Message) {
			told[w] = true
			found(r.Message, "was stored for %s, and there it has no effect, is no dead letter, and does not wait", r.Consumer)
		}
	}
}
