package dialect

import "cmp"

// KeyRef identifies an ordering key of a spool.
type KeyRef struct {
	Spool, Hash int64
	Key         []byte
}

// Lookup identifies a message for an operator, who holds no lane and knows only the id.
type Lookup struct{ Spool, ID int64 }

// SetDueParams say when a waiting message is due.
type SetDueParams struct {
	Spool int64
	Ref
	At int64 // 0 is now
}

// KeepHistoryParams say how long a spool keeps done messages.
type KeepHistoryParams struct{ Spool, Keep int64 }

// Pause says by whom, why and until when something is paused.
type Pause struct {
	By, Reason string
	Ends       int64 // a time, or 0 for no end; a key has none
}

func (p Pause) ends() int64 { return cmp.Or(p.Ends, Never) }

// Spools returns id, name, version, paused at, by whom, reason, end of the pause, settings, paused
// keys and paused topics of a spool, or with 0 of all. A pause that has ended is none.
func (s *Statements) Spools(spool int64) Query { return s.spools.with(args{"spool": spool}) }

// SetSettings stores the settings of a spool. It changes no row if they are equal to the stored
// ones.
func (s *Statements) SetSettings(spool int64, settings string) Query {
	return s.setSettings.with(args{"spool": spool, "settings": settings})
}

// PauseSpool pauses a spool, or ends the pause. It changes no row if it is so already, with this
// reason and this end.
func (s *Statements) PauseSpool(spool int64, pause bool, p Pause) Query {
	return s.pauseSpool.with(args{"spool": spool, "pause": number(pause), "by": p.By, "reason": p.Reason, "ends": p.ends()})
}

// number is how the tables have it, and statements get it.
func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// PauseKey pauses a key, unless it is paused.
func (s *Statements) PauseKey(k KeyRef, p Pause) Query {
	return s.pauseKey.with(args{"spool": k.Spool, "hash": k.Hash, "key": k.Key, "by": p.By, "reason": p.Reason})
}

// ResumeKey ends the pause of a key.
func (s *Statements) ResumeKey(k KeyRef) Query {
	return Query{Text: s.resumeKey, Args: []any{k.Spool, k.Hash, k.Key}}
}

// PauseTopic pauses a topic, unless it is paused.
func (s *Statements) PauseTopic(spool int64, topic string, p Pause) Query {
	return Query{Text: s.pauseTopic, Args: []any{spool, topic, p.By, p.Reason, p.ends()}}
}

// ReplaceTopicPause ends the pause of a topic that has another reason or end, before PauseTopic,
// and deletes what is left of pauses that have ended.
func (s *Statements) ReplaceTopicPause(spool int64, topic string, p Pause) Query {
	return Query{Text: s.replaceTopicPause, Args: []any{spool, topic, p.Reason, p.ends()}}
}

// ResumeTopic ends the pause of a topic.
func (s *Statements) ResumeTopic(spool int64, topic string) Query {
	return Query{Text: s.resumeTopic, Args: []any{spool, topic}}
}

// PendingMessage returns the columns of [Statements.Search], payload, metadata, source and carried
// id of a message that is not done.
func (s *Statements) PendingMessage(l Lookup) Query {
	return Query{Text: s.pendingMessage, Args: []any{l.Spool, l.ID}}
}

// DoneMessage returns the columns of [Statements.Done], payload, metadata, source and carried id of
// a message that is done: of the latest one with the id, unless the time of its creation is given.
func (s *Statements) DoneMessage(l Lookup, createdAt int64) Query {
	return s.doneMessage.with(args{"spool": l.Spool, "id": l.ID, "created_at": createdAt})
}

// LockListed locks a message that was listed at a place until the transaction ends. It returns
// state, lane, created at, 1 if it is parked, 1 if it is due, due at, attempts, or nothing if the
// message is no longer there.
func (s *Statements) LockListed(spool int64, at Place) Query {
	return Query{Text: s.lockListed, Args: []any{spool, at.State, at.Lane, at.ID}}
}

// The statements below are for a message that LockListed has locked, so they need no token and no
// time of creation.

// SetDue changes the due time of a waiting message. A parked message gets all its attempts again.
func (s *Statements) SetDue(p SetDueParams) Query {
	return s.setDue.with(args{"at": p.At, "spool": p.Spool, "state": p.State, "lane": p.Lane, "id": p.ID})
}

// BuryWaiting copies a message to the dead letters.
func (s *Statements) BuryWaiting(spool int64, r Ref, b Burial) Query {
	return Query{Text: s.buryWaiting, Args: []any{b.Subject, b.Error, int(b.Cause), spool, r.State, r.Lane, r.ID}}
}

// RemoveMessage deletes a message.
func (s *Statements) RemoveMessage(spool int64, r Ref) Query {
	return Query{Text: s.removeMessage, Args: []any{spool, r.State, r.Lane, r.ID}}
}

// KeepBatches stores by which rule the messages of a spool are due. It changes no row if that is
// stored already.
func (s *Statements) KeepBatches(spool int64, rule string) Query {
	return s.keepBatches.with(args{"spool": spool, "rule": rule})
}

// KeepHistory stores how long a spool keeps done messages. It changes no row if that is stored
// already.
func (s *Statements) KeepHistory(p KeepHistoryParams) Query {
	return s.keepHistory.with(args{"spool": p.Spool, "history": p.Keep})
}
