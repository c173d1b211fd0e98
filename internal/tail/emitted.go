package tail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Emitted are messages that a publisher wrote into the log in one piece, without rows.
type Emitted struct {
	Outbox string
	Lanes  int // of the outbox, in case that it is not registered yet
	Drafts []spool.Draft
}

// emittedVersion begins a piece. A later form has another number, so that an earlier version of Postbox stops at it.
const emittedVersion = 1

// MaxEmitted limits the bytes of a piece, except for its last message. The server holds it in memory as a whole.
const MaxEmitted = 4 << 20

// ErrEmittedVersion is the error for messages that a later version of Postbox has written.
var ErrEmittedVersion = errors.New("the log has messages that a later version of Postbox has written: use that version for the forwarders, too")

var errEmitted = errors.New("decode messages of the log: they are cut off or of another program")

// Encode returns one or several pieces with all messages, in their order.
func (e Emitted) Encode() ([][]byte, error) {
	var pieces [][]byte
	var piece []byte
	for _, draft := range e.Drafts {
		metadata, err := spool.EncodeMetadata(draft.Metadata)
		if err != nil {
			return nil, fmt.Errorf("encode metadata of message %.60q: %w", draft.MessageID, err)
		}
		if piece == nil {
			piece = appendWord([]byte{emittedVersion}, e.Outbox)
			piece = binary.AppendUvarint(piece, uint64(e.Lanes)) //nolint:gosec // not negative
		}
		piece = appendWord(appendWord(appendWord(piece, draft.Topic), draft.MessageID), draft.Key)
		piece = appendWord(appendWord(piece, draft.Payload), metadata)
		due := int64(0)
		if !draft.Due.IsZero() {
			due = draft.Due.UnixMicro()
		}
		piece = binary.AppendVarint(binary.AppendVarint(piece, draft.Delay.Microseconds()), due)
		if len(piece) >= MaxEmitted {
			pieces, piece = append(pieces, piece), nil
		}
	}
	if piece != nil {
		pieces = append(pieces, piece)
	}
	return pieces, nil
}

func appendWord[T string | []byte](to []byte, word T) []byte {
	return append(binary.AppendUvarint(to, uint64(len(word))), word...)
}

// DecodeEmitted decodes a piece. Its messages do not refer to the bytes of the piece. A delay counts from the commit.
func DecodeEmitted(piece []byte, committed time.Time) (Emitted, error) {
	var e Emitted
	from := reader{rest: piece}
	if version := from.byte(); version > emittedVersion {
		return e, ErrEmittedVersion
	} else if version != emittedVersion {
		return e, errEmitted
	}
	e.Outbox = string(from.word())
	lanes := from.uvarint()
	if lanes == 0 || lanes > spool.MaxLanes {
		return e, errEmitted
	}
	e.Lanes = int(lanes)
	for len(from.rest) > 0 && !from.short {
		draft := spool.Draft{Topic: string(from.word()), MessageID: string(from.word()), Key: string(from.word())}
		draft.Payload = append([]byte{}, from.word()...)
		metadata := from.word()
		delay, due := from.varint(), from.varint()
		if from.short {
			break
		}
		var err error
		if draft.Metadata, err = spool.DecodeMetadata(metadata); err != nil {
			return e, errors.Join(errEmitted, err)
		}
		if err := draft.Check(); err != nil {
			return e, errors.Join(errEmitted, err)
		}
		if due != 0 {
			draft.Due = time.UnixMicro(due)
		} else if delay > 0 && delay < math.MaxInt64/int64(time.Microsecond) {
			draft.Due = committed.Add(time.Duration(delay) * time.Microsecond)
		}
		e.Drafts = append(e.Drafts, draft)
	}
	if from.short {
		return e, errEmitted
	}
	return e, nil
}

// word reads a word of which the length comes first.
func (r *reader) word() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.rest, r.short = nil, true
		return nil
	}
	return r.bytes(int(n)) //nolint:gosec // it is not longer than the rest
}

func (r *reader) uvarint() uint64 {
	value, n := binary.Uvarint(r.rest)
	r.advance(n)
	return value
}

func (r *reader) varint() int64 {
	value, n := binary.Varint(r.rest)
	r.advance(n)
	return value
}

// advance goes on by n bytes. No number is 0 bytes long.
func (r *reader) advance(n int) {
	if n <= 0 {
		r.rest, r.short = nil, true
		return
	}
	r.rest = r.rest[n:]
}
