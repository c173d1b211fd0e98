package drain

import (
	"time"

	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// observe reports the outcomes of settled messages, after the commit. After a crash between the
// two, or a lost answer, an outcome may be reported twice or not at all. The same holds for
// messages that were removed together with one whose row was gone. A message that is put back
// unchanged has no outcome.
func (s *settler) observe(settled []*schedule.Entry) {
	if s.configured.Meter == nil {
		return
	}
	tally := s.configured.Meter.Tally(time.Now().Add(s.databaseAhead))
	for _, e := range settled {
		if outcome, ended := s.outcomeOf(e); ended {
			tally.Ended(e.Message, outcome)
		}
	}
	tally.Report()
}

var outcomes = [...]meter.Outcome{tryAgain: meter.Retry, wait: meter.Wait, park: meter.Parked, bury: meter.Dead}

func (s *settler) outcomeOf(e *schedule.Entry) (outcome meter.Outcome, ended bool) {
	switch e.Outcome.Verdict {
	case spool.Done, spool.Settled:
		return meter.Done, true
	case spool.Retry, spool.Dead, spool.Wait, spool.Again:
		return outcomes[s.next(e)], true
	default:
		return "", false
	}
}

// settledIn reports how long a settlement took, from the start given.
func (s *settler) settledIn(started time.Duration) {
	s.configured.Meter.Settled(s.configured.Meter.Now() - started)
}
