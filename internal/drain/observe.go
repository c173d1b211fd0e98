package drain

import (
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// End is what became of a message.
type End int

const (
	// EndDone says that it was handled, and its row is gone.
	EndDone End = iota
	// EndRetry says that it failed, and waits for another attempt.
	EndRetry
	// EndWait says that it waits, and no attempt was counted.
	EndWait
	// EndParked says that it waits for an operator.
	EndParked
	// EndDead says that it is a dead letter.
	EndDead
)

// Observer hears what becomes of messages, after the commit: a crash between the two, or an answer that was lost, leaves an end unheard or lets it be heard
// twice. It is called by the goroutine that reads, so it must not wait for anything. It must not change the message, whose payload may be gone by then.
type Observer interface {
	Ended(m *spool.Message, end End)
}

// observe tells the observer of messages that are settled. One that comes back as it was has not ended.
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
