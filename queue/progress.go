package queue

import (
	"context"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// progress holds the outcomes of the messages of a batch so far.
type progress struct {
	all      []*spool.Message
	outcomes []spool.Outcome
	waiting  spool.ClosedKeys // with a message that is not done: their later messages must wait
	handed   bool             // the handler has had messages of the batch
}

func newProgress(batch []*spool.Message) *progress {
	return &progress{all: batch, outcomes: make([]spool.Outcome, len(batch)), waiting: spool.ClosedKeys{}}
}

// indices returns the indices of all messages.
func (p *progress) indices() []int {
	list := make([]int, len(p.all))
	for i := range list {
		list[i] = i
	}
	return list
}

// messages returns the messages of a part.
func (p *progress) messages(part []int) []*spool.Message {
	list := make([]*spool.Message, len(part))
	for at, i := range part {
		list[at] = p.all[i]
	}
	return list
}

// mayHand reports whether a part may be handed to the handler now. The scheduler has counted the
// messages of the batch for the limits once. If the handler has had some already, the part waits
// until the limits allow it. If it must not be handed out, mayHand postpones it.
func (p *progress) mayHand(ctx context.Context, q *queue, part []int) bool {
	first := !p.handed
	p.handed = true
	if first || q.drainer.Repeat(ctx, p.messages(part)) {
		return true
	}
	p.set(part, spool.Outcome{Verdict: spool.Postpone})
	return false
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

// wait makes later messages of the key of a message wait.
func (p *progress) wait(i int) {
	p.waiting.Close(p.all[i])
}

// isFree reports whether a message may be handled now. If an earlier message of its key is not
// done, isFree postpones the message.
func (p *progress) isFree(i int) bool {
	waits := p.waiting.Has(p.all[i])
	if waits {
		p.outcomes[i] = spool.Outcome{Verdict: spool.Postpone}
	}
	return !waits
}

// withoutWaiting returns the messages of a part that may be handled now.
func (p *progress) withoutWaiting(part []int) []int {
	var free []int
	for _, i := range part {
		if p.isFree(i) {
			free = append(free, i)
		}
	}
	return free
}
