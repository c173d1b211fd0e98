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

	// size of payload and metadata in bytes; large ones are loaded just before they are handled.
	size   int
	loaded bool
	// broken says why the stored form could not be decoded.
	broken error
	// suspect: it may have brought down the process that held its lane before. started is 1 when that it is
	// being handled has been counted. doomed: it has been too often.
	// counted: its start has been counted, so it is no suspect any more should it come back.
	suspect bool
	started int
	doomed  error
	counted bool
	// apart: it is handled by itself, since its end was refused.
	apart bool
	// spool is where it stands, and whether it is kept when it is done. For guarded see [Guarded].
	spool   *Spool
	keep    bool
	guarded bool
	// due is when a batch must take it at the latest, by this process's clock; zero for never.
	due time.Time
}

// unload lets go of what is read again when it is needed.
func (m *Message) unload() { m.Payload, m.Metadata, m.loaded = nil, nil, false }

// MessageSubject names a stored message in the table of failures: by its id and its time of creation, since a database that goes back to an earlier
// state gives out the id again, and the new message must not inherit the failures of another one.
func MessageSubject(id, createdAt int64) []byte {
	subject := binary.BigEndian.AppendUint64([]byte{'m'}, uint64(id)) //nolint:gosec // the bits are kept
	return binary.BigEndian.AppendUint64(subject, uint64(createdAt))  //nolint:gosec // the bits are kept
}

// Subject returns it for the message.
func (m *Message) Subject() []byte { return MessageSubject(m.Ref.ID, m.Ref.CreatedAt) }
