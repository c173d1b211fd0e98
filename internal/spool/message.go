package spool

import (
	"encoding/binary"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Message is a stored message in the form that a handler gets.
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
	// Attempts is the number of attempts that failed before this one.
	Attempts int
	// Starts is the number of starts that never came back, because their process ended.
	Starts int

	// Size is the size of payload and metadata in bytes. Large messages are loaded just before they
	// are handled.
	Size   int
	Loaded bool
	// Broken is the reason why the stored form could not be decoded.
	Broken error
	// Exposed is set if the previous holder of the lane may have been handling the message when it
	// ended. Started is 1 once this start has been recorded. Doomed is set when too many starts
	// never came back. Counted is set when the start has been recorded: a message that then comes
	// back has not crashed its process.
	Exposed bool
	Started int
	Doomed  error
	Counted bool
	// Began is when the handler was called with the message.
	Began time.Time
	// Apart is set for a message that must be handled by itself, since it had a setback.
	Apart bool
	// Spool is the spool that stores the message. Keep is set if the message goes to the history
	// when it is done. For NoticesEnd see the function [NoticesEnd].
	Spool      *Spool
	Keep       bool
	NoticesEnd bool
	// Due is the latest time at which a batch must take the message, by the database's clock; zero
	// for never. Last is set for the messages of the last batch of a scheduled time.
	Due  time.Time
	Last bool
}

// Handled returns the Ref of a message that is to be settled.
func (m *Message) Handled() dialect.Ref {
	ref := m.Ref
	ref.Began = m.Began
	return ref
}

// Unload releases payload and metadata, which are read again when they are needed.
func (m *Message) Unload() { m.Payload, m.Metadata, m.Loaded = nil, nil, false }

// MessageSubject identifies a stored message in the table of failures, by its id and its time of
// creation. A database that goes back to an earlier state issues the id again, and the new message
// must not inherit the failures of another one.
func MessageSubject(id, createdAt int64) []byte {
	subject := binary.BigEndian.AppendUint64([]byte{'m'}, uint64(id)) //nolint:gosec // keeps the bits
	return binary.BigEndian.AppendUint64(subject, uint64(createdAt))  //nolint:gosec // keeps the bits
}

// Subject returns the [MessageSubject] of the message.
func (m *Message) Subject() []byte { return MessageSubject(m.Ref.ID, m.Ref.CreatedAt) }

// Decode sets payload and metadata from their stored form. If the metadata cannot be decoded, it
// sets Broken.
func (m *Message) Decode(payload, metadata []byte) {
	m.Payload, m.Loaded = payload, true
	m.Metadata, m.Broken = DecodeMetadata(metadata)
}

// ToLoad returns the number of bytes that must be loaded to handle the message.
func (m *Message) ToLoad() int {
	if m.Loaded {
		return 0
	}
	return m.Size
}

// NeverWaited reports whether the message has been ready since it was stored, so that it did not
// wait for a time or for another attempt.
func (m *Message) NeverWaited() bool { return m.Ref.State == dialect.StateReady && m.Attempts == 0 }

// Suspect reports whether the message has been started and did not come back.
func (m *Message) Suspect() bool { return m.Starts > 0 }

// AllStarts is the number of starts of the message, including this one. Since the message was read,
// one of them may have come back: to the previous holder of the lane, which lost the lane while its
// handler was busy. So a message that this number would make dead is then read again.
func (m *Message) AllStarts() int { return m.Starts + m.Started }

// Identity identifies a message among all that its database has ever had. A database that goes back
// to an earlier state issues ids again, but not with the same time.
type Identity struct {
	ID, CreatedAt int64 // the time in microseconds
}

// Identity returns the identity of the message.
func (m *Message) Identity() Identity {
	return Identity{ID: m.Ref.ID, CreatedAt: m.CreatedAt.UnixMicro()}
}
