package dialect

// Failure is an entry in the failures of a subject. A subject is a message or a claim.
type Failure struct {
	Subject []byte
	Attempt int // 0 for a note; if it is the last entry, attempts count again from there
	Error   string
	Process string
}

// Letter is a dead letter that was not stored as a message.
type Letter struct {
	Subject   []byte
	Spool     int64 // 0 for none
	Topic     string
	MessageID []byte
	Payload   []byte
	Metadata  []byte
	Error     string
	Cause     Cause
}

// InboxLetter is the dead letter of a message that an inbox got from a broker.
type InboxLetter struct {
	Letter
	Consumer string
	// Source and CarriedID are the topic on which the message came, "" if it is not known, and its
	// own id, which may be empty: Topic and MessageID say by what the consumer knows it.
	Source    string
	CarriedID []byte
	Key       []byte // nil without an ordering key
	KeyHash   *int64
	Attempts  int
}

// InsertFailure adds an entry.
func (s *Statements) InsertFailure(f Failure) Query {
	return s.query("InsertFailure", args{"subject": f.Subject, "attempt": f.Attempt, "error": f.Error, "process": f.Process})
}

// InsertDeadLetter stores a dead letter of an inbox, or without a consumer that of a row of a
// source that is no message.
func (s *Statements) InsertDeadLetter(l InboxLetter) Query {
	values := l.args()
	values["consumer"], values["attempts"] = l.Consumer, l.Attempts
	values["source"], values["carried_id"], values["key"], values["key_hash"] = l.Source, l.CarriedID, l.Key, l.KeyHash
	return s.query("InsertDeadLetter", values)
}

// args: without a spool there is NULL.
func (l Letter) args() args {
	var spool any
	if l.Spool != 0 {
		spool = l.Spool
	}
	return args{
		"subject": l.Subject, "spool": spool, "topic": l.Topic, "message_id": l.MessageID,
		"payload": l.Payload, "metadata": l.Metadata, "error": l.Error, "cause": int(l.Cause),
	}
}
