package tail

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
)

// Decoder reads the stream of pgoutput, PostgreSQL's own output plugin, in version 1 of its
// protocol. Of all changes it wants the inserts into some tables, and of their rows the outbox and
// the lane. The server sends a transaction after its commit, so what is decoded is committed.
type Decoder struct {
	messages    uint32         // the oid of the table of messages
	spools      map[uint32]int // of each table the place of the column spool; -1 for none
	lane        int            // the place of the column lane in the table of messages
	transaction uint32
	within      bool
}

// NewDecoder returns a decoder for the table of messages with this oid, and for others whose rows
// tell that something has changed.
func NewDecoder(messages uint32, others ...uint32) *Decoder {
	d := &Decoder{messages: messages, spools: map[uint32]int{messages: -1}, lane: -1}
	for _, table := range others {
		d.spools[table] = -1
	}
	return d
}

// Within reports whether the begin of a transaction was decoded, and not yet its commit.
func (d *Decoder) Within() bool { return d.within }

var (
	errShort  = errors.New("decode the log: a message is shorter than it should be")
	errNumber = errors.New("decode the log: the column spool or lane has no number")
)

// Event is what a message of the stream was.
type Event int

// The kinds of events. Others are no matter of outboxes.
const (
	Other     Event = iota
	Changed         // of an outbox, or of all
	Committed       // a transaction
	Described       // the table of messages: before the first insert, and again if the publication may have been altered
)

// Decode decodes one message of the stream. After a commit, end is the position in the log up to
// which everything has been sent.
func (d *Decoder) Decode(data []byte) (event Event, change Change, end uint64, err error) {
	if len(data) == 0 {
		return Other, change, 0, errShort
	}
	from := reader{rest: data[1:]}
	switch data[0] {
	case 'B':
		from.skip(16)
		d.transaction, d.within = from.uint32(), true
	case 'C':
		from.skip(9)
		end = from.uint64()
		event, d.within = Committed, false
	case 'R':
		if d.describe(&from) == d.messages {
			event = Described
		}
	case 'I':
		table := from.uint32()
		if place, known := d.spools[table]; known {
			event, change = Changed, Change{Transaction: d.transaction, Message: table == d.messages}
			row := from
			if change.Spool, err = from.number(place); err == nil && change.Message {
				var lane int64
				lane, err = row.number(d.lane)
				change.Lane = int(lane)
			}
		}
	}
	if err == nil && from.short {
		err = errShort
	}
	return event, change, end, err
}

// describe learns where a table has the columns spool and lane, and returns the table. The server
// describes one before the first change, and again after the table or any publication was altered,
// or the table was analyzed.
func (d *Decoder) describe(from *reader) (table uint32) {
	table = from.uint32()
	from.text() // the schema
	from.text() // the name
	from.skip(1)
	columns := make([]string, from.uint16())
	for i := range columns {
		from.skip(1)
		columns[i] = from.text()
		from.skip(8)
	}
	if _, known := d.spools[table]; known {
		d.spools[table] = slices.Index(columns, "spool")
	}
	if table == d.messages {
		d.lane = slices.Index(columns, "lane")
	}
	return table
}

// reader reads from a message of the stream. short is set if it is at its end too early.
type reader struct {
	rest  []byte
	short bool
}

// number returns the number in a column of a row, 0 without such a column.
func (r *reader) number(place int) (int64, error) {
	r.skip(1) // 'N'
	for i, count := 0, int(r.uint16()); i < count && i <= place; i++ {
		kind := r.byte()
		if kind == 'n' || kind == 'u' {
			continue
		}
		value := r.bytes(int(r.uint32()))
		switch {
		case i < place || r.short:
		case kind == 't':
			n, err := strconv.ParseInt(string(value), 10, 64)
			return n, err
		case len(value) == 4: // an integer
			return int64(int32(binary.BigEndian.Uint32(value))), nil //nolint:gosec // its bits
		case len(value) == 2: // a smallint
			return int64(int16(binary.BigEndian.Uint16(value))), nil //nolint:gosec // its bits
		default:
			return 0, errNumber
		}
	}
	return 0, nil
}

func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.rest, r.short = nil, true
		return nil
	}
	value := r.rest[:n:n]
	r.rest = r.rest[n:]
	return value
}

func (r *reader) skip(n int) { r.bytes(n) }

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// text reads a text that ends with a zero byte.
func (r *reader) text() string {
	n := slices.Index(r.rest, 0)
	if n < 0 {
		r.rest, r.short = nil, true
		return ""
	}
	value := string(r.rest[:n])
	r.rest = r.rest[n+1:]
	return value
}
