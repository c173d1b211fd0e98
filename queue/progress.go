package queue

import "github.com/postbox-go/watermill-postbox/internal/spool"

// progress is what has become of the messages of a batch so far.
type progress struct {
	all      []*spool.Message
	outcomes []spool.Outcome
	waiting  spool.ClosedKeys // of which a message did not get through: later ones must wait
	refused  int              // how often a transaction was refused for a locked row, and others were tried at once
}

func newProgress(batch []*spool.Message) *progress {
	return &progress{all: batch, outcomes: make([]spool.Outcome, len(batch)), waiting: spool.ClosedKeys{}}
}

// indices lists those of all messages.
func (p *progress) indices() []int {
	list := make([]int, len(p.all))
	for i := range list {
		list[i] = i
	}
	return list
}

// messages returns those of a part.
func (p *progress) messages(part []int) []*spool.Message {
	list := make([]*spool.Message, len(part))
	for at, i := range part {
		list[at] = p.all[i]
	}
	return list
}

// set gives all messages of a part the same outcome.
func (p *progress) set(part []int, outcome spool.Outcome) {
	for _, i := range part {
		p.outcomes[i] = outcome
		if !outcome.Through() {
			p.wait(i)
		}
	}
}

// wait lets what stands behind a message of its key wait.
func (p *progress) wait(i int) {
	p.waiting.Close(p.all[i])
}

// isFree says whether a message may be handled now. One that stands behind another of its key that did not get through is postponed.
func (p *progress) isFree(i int) bool {
	waits := p.waiting.Has(p.all[i])
	if waits {
		p.outcomes[i] = spool.Outcome{Verdict: spool.Postpone}
	}
	return !waits
}

// withoutWaiting returns those of a part that may be handled now.
func (p *progress) withoutWaiting(part []int) []int {
	var free []int
	for _, i := range part {
		if p.isFree(i) {
			free = append(free, i)
		}
	}
	return free
}
