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

// pauses sets the statements that pause and resume. A row is changed only if that changes
// something.
func (s *Statements) pauses() {
	s.pauseSpool = s.Named(`
UPDATE {spools} AS s SET paused_at = CASE WHEN :pause = 1 THEN {now} END, paused_by = :by, pause_reason = :reason, pause_ends_at = :ends
WHERE s.id = :spool AND (CASE WHEN ` + dialect.PausedAt + ` IS NULL THEN 0 ELSE 1 END <> :pause OR (:pause = 1 AND (s.pause_reason <> :reason OR s.pause_ends_at <> :ends)))`)

	s.pauseKey = s.Named(`
INSERT INTO {pauses} (spool, key_hash, ordering_key, paused_at, paused_by, reason)
SELECT s.id, {int :hash}, {blob :key}, {now}, {text :by}, {text :reason} FROM {spools} s
WHERE s.id = :spool AND NOT EXISTS (SELECT 1 FROM {pauses} z WHERE z.spool = s.id AND z.key_hash = :hash AND z.ordering_key = :key)`)

	s.resumeKey = s.Named(`
DELETE FROM {pauses} WHERE spool = :spool AND key_hash = :hash AND ordering_key = :key`)

	s.replaceTopicPause = s.Named(`
DELETE FROM {topic_pauses} WHERE spool = :spool AND (ends_at <= {now} OR (topic = :topic AND (reason <> :reason OR ends_at <> :ends)))`)

	s.pauseTopic = s.Named(`
{insert ignore} INTO {topic_pauses} (spool, topic, paused_at, paused_by, reason, ends_at) VALUES (:spool, :topic, {now}, :by, :reason, :ends) {or ignore}`)

	s.resumeTopic = s.Named(`
DELETE FROM {topic_pauses} WHERE spool = :spool AND topic = :topic`)
}

// PauseSpool pauses a spool, or ends the pause.
func (s *Statements) PauseSpool(spool int64, pause bool, p Pause) dialect.Query {
	values := p.args(spool)
	values["pause"] = number(pause)
	return s.pauseSpool.With(values)
}

// PauseKey pauses a key.
func (s *Statements) PauseKey(k KeyRef, p Pause) dialect.Query {
	values := p.args(k.Spool)
	values["hash"], values["key"] = k.Hash, k.Key
	return s.pauseKey.With(values)
}

// ResumeKey ends the pause of a key.
func (s *Statements) ResumeKey(k KeyRef) dialect.Query {
	return s.resumeKey.With(args{"spool": k.Spool, "hash": k.Hash, "key": k.Key})
}

// ReplaceTopicPause ends the pause of a topic that has another reason or end, before PauseTopic,
// and deletes what is left of pauses that have ended.
func (s *Statements) ReplaceTopicPause(spool int64, topic string, p Pause) dialect.Query {
	return s.replaceTopicPause.With(p.ofTopic(spool, topic))
}

// PauseTopic pauses a topic, unless it is paused.
func (s *Statements) PauseTopic(spool int64, topic string, p Pause) dialect.Query {
	return s.pauseTopic.With(p.ofTopic(spool, topic))
}

// ResumeTopic ends the pause of a topic.
func (s *Statements) ResumeTopic(spool int64, topic string) dialect.Query {
	return s.resumeTopic.With(args{"spool": spool, "topic": topic})
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
