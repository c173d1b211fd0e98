package drain

import (
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// End is the outcome of a message.
type End int

const (
	// EndDone means that the message was handled, and its row is gone.
	EndDone End = iota
	// EndRetry means that the message failed, and waits for another attempt.
	EndRetry
	// EndWait means that the message waits, and no attempt was counted.
	EndWait
	// EndParked means that the message waits for an operator.
	EndParked
	// EndDead means that the message is a dead letter.
	EndDead
)

// Observer is told the outcome of messages after the commit. After a crash between the two, or a lost answer, an
// outcome may be reported twice or not at all. The same holds for messages that were removed together with one whose row
// was gone. The goroutine that reads calls the observer, so the observer must not wait for anything, and must not panic.
// It must not change the message, whose payload may be gone by then.
type Observer interface {
	Ended(m *spool.Message, end End)
}

// observe reports settled messages to the observer. A message that is put back unchanged has not ended.
func (d *Drainer) observe(settled []*schedule.Entry) {
	if d.configured.Observer == nil {
		return
	}
	for _, e := range settled {
		if end, ended := d.endOf(e); ended {
			d.configured.Observer.Ended(e.Message, end)
		}
	}
}

var endings = [...]End{tryAgain: EndRetry, wait: EndWait, park: EndParked, bury: EndDead}

func (d *Drainer) endOf(e *schedule.Entry) (end End, ended bool) {
	switch e.Outcome.Verdict {
	case spool.Done, spool.Settled:
		return EndDone, true
	case spool.Retry, spool.Dead, spool.Wait, spool.Again:
		return endings[d.next(e)], true
	default:
		return 0, false
	}
}
