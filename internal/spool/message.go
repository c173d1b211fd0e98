package spool

import (
	"encoding/binary"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Message is a stored message as a handler gets it.
type Message struct {
	Ref       dialect.Ref
	Topic     string
	MessageID string
	Key       string
	HasKey    bool
	KeyHash   int64
	Payload   []byte
	Metadata  map[string]string
	CreatedAt time.Time
	// Attempts that failed before this one.
	Attempts int
	// Starts of attempts that never came back, because their process did not either.
	Starts int

	// Size of payload and metadata in bytes; large ones are loaded just before they are handled.
	Size   int
	Loaded bool
	// Broken says why the stored form could not be decoded.
	Broken error
	// Exposed is set where the process that held the lane before may have been handling the message when it ended. Started is 1 once this start has been
	// recorded. Doomed is set when too many starts never came back. Counted is set when the start has been recorded: a message that then comes back has
	// brought down no process.
	Exposed bool
	Started int
	Doomed  error
	Counted bool
	// Apart is set for a message that is handled by itself, since its end was refused.
	Apart bool
	// Spool is where the message is stored. Keep says that it goes to the history when it is done. For Guarded see the function [Guarded].
	Spool   *Spool
	Keep    bool
	Guarded bool
	// Due is when a batch must take it at the latest, by this process's clock; zero for never.
	Due time.Time
}

// Unload lets go of what is read again when it is needed.
func (m *Message) Unload() { m.Payload, m.Metadata, m.Loaded = nil, nil, false }

// MessageSubject names a stored message in the table of failures: by its id and its time of creation, since a database that goes back to an earlier
// state gives out the id again, and the new message must not inherit the failures of another one.
func MessageSubject(id, createdAt int64) []byte {
	subject := binary.BigEndian.AppendUint64([]byte{'m'}, uint64(id)) //nolint:gosec // the bits are kept
	return binary.BigEndian.AppendUint64(subject, uint64(createdAt))  //nolint:gosec // the bits are kept
}

// Subject returns it for the message.
func (m *Message) Subject() []byte { return MessageSubject(m.Ref.ID, m.Ref.CreatedAt) }

// Decode takes in payload and metadata as they are stored. What cannot be read of them is noted in Broken.
func (m *Message) Decode(payload, metadata []byte) {
	m.Payload, m.Loaded = payload, true
	m.Metadata, m.Broken = DecodeMetadata(metadata)
}

// ToLoad returns the bytes that handling the message loads.
func (m *Message) ToLoad() int {
	if m.Loaded {
		return 0
	}
	return m.Size
}

// Suspect says that the message has been started and did not come back.
func (m *Message) Suspect() bool { return m.Starts > 0 }

// AllStarts is how often the message has been started, this time included, unless one of them has come back since it was
// read: to the process that had the lane before, and lost it while the handler was busy. A message that this number would end is then read again.
func (m *Message) AllStarts() int { return m.Starts + m.Started }

// Identity names a message among all that its database has had: a database that goes back to an earlier state gives out ids again, but not with the
// same time.
type Identity struct {
	ID, CreatedAt int64 // the time in microseconds
}

// Identity returns it for the message.
func (m *Message) Identity() Identity {
	return Identity{ID: m.Ref.ID, CreatedAt: m.CreatedAt.UnixMicro()}
}
