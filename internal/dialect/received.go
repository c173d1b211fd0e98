package dialect

// keepReceived puts a message that an inbox has handled into the history. Its id is the time at
// which it was received, as is its time of creation, so the key of the table keeps ids apart: a
// second message of the same microsecond changes no row. The time is written once in the statement,
// since some databases read their clock for each use.
//
// The row is made only where the transaction has claimed the message. If the transaction has ended
// without the driver's knowledge, the claim is gone, and the statement keeps nothing.
const keepReceived = `
{insert ignore} INTO {history} (id, spool, topic, message_id, source_topic, carried_id, ordering_key, payload, metadata, created_at, done_at, attempts, omitted, process)
SELECT n.clock - {int :since}, {int :spool}, {text :topic}, {blob :message_id}, {text :source}, {blob :carried_id}, {blob :key}, {blob :payload}, {blob :metadata}, n.clock - {int :since}, n.clock, 0, {int :omitted}, {text :process}
FROM (SELECT CASE WHEN {int :clock} > 0 THEN {int :clock} ELSE {now} END AS clock FROM {claims} WHERE claim_key = :claim ORDER BY claim_key LIMIT 1) n
{or ignore}`

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
	return s.keepReceived.with(args{
		"claim": r.Claim, "spool": r.Spool, "topic": r.Topic, "message_id": r.MessageID, "source": r.Source, "carried_id": r.CarriedID, "key": r.Key,
		"payload": r.Payload, "metadata": r.Metadata, "clock": r.Clock, "since": r.Since, "omitted": r.Omitted, "process": r.Process,
	})
}
