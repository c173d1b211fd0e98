package tail

import (
	"strconv"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// EmittedDecoder reads the stream of pgoutput for messages of publishers that write into the log.
type EmittedDecoder struct {
	prefix      string
	transaction uint32
	final       uint64
	committed   time.Time
	within      bool
	told        told
}

// NewEmittedDecoder returns a decoder for the messages that belong to the table of messages with this oid. Inserts into the tables with the oids told are
// changes.
func NewEmittedDecoder(table uint32, told ...uint32) *EmittedDecoder {
	return &EmittedDecoder{prefix: dialect.OutboxPrefix + strconv.FormatUint(uint64(table), 10), told: newTold(told)}
}

// Piece is a message of the log, with one or several messages of an outbox.
type Piece struct {
	Transaction uint32 // the low 32 bits of the transaction's id
	Committed   time.Time
	Content     []byte
	Spool       int64 // of a change, the outbox; 0 for all
}

// Within reports whether the begin of a transaction was decoded, and not yet its commit.
func (d *EmittedDecoder) Within() bool { return d.within }

// Final returns where the commit begins of the transaction that was begun last.
func (d *EmittedDecoder) Final() uint64 { return d.final }

// Committed returns when the transaction that was begun last was committed, by the clock of the database.
func (d *EmittedDecoder) Committed() time.Time { return d.committed }

// MicrosecondsTo2000 is the time from 1970 to PostgreSQL's first year.
const MicrosecondsTo2000 = 946_684_800_000_000

// Decode decodes one message of the stream. A piece refers to the bytes of data. After a commit, end is the position in
// the log up to which everything has been sent.
func (d *EmittedDecoder) Decode(data []byte) (event Event, piece Piece, end uint64, err error) {
	if len(data) == 0 {
		return Other, piece, 0, errShort
	}
	from := reader{rest: data[1:]}
	switch data[0] {
	case 'B':
		event, d.final = Begin, from.uint64()
		d.committed = time.UnixMicro(int64(from.uint64()) + MicrosecondsTo2000) //nolint:gosec // a time
		d.transaction, d.within = from.uint32(), true
	case 'C':
		from.skip(9)
		end = from.uint64()
		event, d.within = Commit, false
	case 'M':
		const transactional = 1
		flags := from.byte()
		from.skip(8)
		prefix := from.text()
		content := from.bytes(int(from.uint32()))
		if flags == transactional && d.within && prefix == d.prefix {
			event, piece = Insert, Piece{Transaction: d.transaction, Committed: d.committed, Content: content}
		}
	case 'R':
		d.told.learn(from.relation())
	case 'I':
		if place, is := d.told[from.uint32()]; is {
			event = Change
			piece.Spool, err = change(&from, place)
		}
	}
	if err == nil && from.short {
		err = errShort
	}
	return event, piece, end, err
}
