package operatorsql

import (
	"cmp"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Pause says by whom, why and until when something is paused.
type Pause struct {
	By, Reason string
	Ends       int64 // a time, or 0 for no end; a key has none
}

// PauseSpool pauses a spool, or ends the pause.
func (s *Statements) PauseSpool(spool int64, pause bool, p Pause) dialect.Query {
	values := p.args(spool)
	values["pause"] = number(pause)
	return s.query("PauseSpool", values)
}

// PauseKey pauses a key.
func (s *Statements) PauseKey(k KeyRef, p Pause) dialect.Query {
	values := p.args(k.Spool)
	values["hash"], values["key"] = k.Hash, k.Key
	return s.query("PauseKey", values)
}

// ResumeKey ends the pause of a key.
func (s *Statements) ResumeKey(k KeyRef) dialect.Query {
	return s.query("ResumeKey", args{"spool": k.Spool, "hash": k.Hash, "key": k.Key})
}

// ReplaceTopicPause ends the pause of a topic that has another reason or end, before PauseTopic,
// and deletes what is left of pauses that have ended.
func (s *Statements) ReplaceTopicPause(spool int64, topic string, p Pause) dialect.Query {
	return s.query("ReplaceTopicPause", p.ofTopic(spool, topic))
}

// PauseTopic pauses a topic, unless it is paused.
func (s *Statements) PauseTopic(spool int64, topic string, p Pause) dialect.Query {
	return s.query("PauseTopic", p.ofTopic(spool, topic))
}

// ResumeTopic ends the pause of a topic.
func (s *Statements) ResumeTopic(spool int64, topic string) dialect.Query {
	return s.query("ResumeTopic", args{"spool": spool, "topic": topic})
}

func (p Pause) ofTopic(spool int64, topic string) args {
	values := p.args(spool)
	values["topic"] = topic
	return values
}

func (p Pause) args(spool int64) args {
	return args{"spool": spool, "by": p.By, "reason": p.Reason, "ends": cmp.Or(p.Ends, dialect.Never)}
}

// number is how the tables have it, and statements get it.
func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
