package dialect

// Received is a message that an inbox has handled.
type Received struct {
	Claim     []byte
	Spool     int64
	Topic     string
	MessageID []byte
	Source    string // see InboxLetter
	CarriedID []byte
	Key       []byte // nil without an ordering key
	Payload   []byte
	Metadata  []byte
	// Clock is the time of the caller. It replaces that of SQLite, which counts milliseconds: the
	// order of the messages depends on it.
	Clock int64
	// Since is for how long the message has been in the inbox.
	Since int64
	// Omitted is the number of bytes of payload and metadata that are not kept.
	Omitted int
	Process string
}

// KeepReceived puts a received message into the history. It changes no row if another message was
// received in the same microsecond, or if the claim is gone.
func (s *Statements) KeepReceived(r Received) Query {
	if s.Kind != SQLite {
		r.Clock = 0
	}
	return s.query("KeepReceived", args{
		"claim": r.Claim, "spool": r.Spool, "topic": r.Topic, "message_id": r.MessageID, "source": r.Source, "carried_id": r.CarriedID, "key": r.Key,
		"payload": r.Payload, "metadata": r.Metadata, "clock": r.Clock, "since": r.Since, "omitted": r.Omitted, "process": r.Process,
	})
}
