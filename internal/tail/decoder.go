package tail

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Decoder reads the stream of pgoutput, PostgreSQL's own output plugin, in version 1 of its protocol. Of all changes it
// wants the inserts into one table. The server sends a transaction after its commit, so what is decoded is committed.
type Decoder struct {
	table       uint32 // its oid
	columns     []column
	found       int
	transaction uint32
	within      bool
	told        told
}

// told are tables whose rows tell that something has changed, with the place of the column spool; -1 for none.
type told map[uint32]int

func newTold(oids []uint32) told {
	t := told{}
	for _, oid := range oids {
		t[oid] = -1
	}
	return t
}

// learn learns where the column is, if it is one of these tables.
func (t told) learn(table uint32, columns []string) (is bool) {
	if _, is = t[table]; is {
		t[table] = slices.Index(columns, "spool")
	}
	return is
}

// NewDecoder returns a decoder for the table of messages with this oid. Inserts into the tables with the oids told are changes.
func NewDecoder(table uint32, told ...uint32) *Decoder {
	return &Decoder{table: table, told: newTold(told)}
}

// Within reports whether the begin of a transaction was decoded, and not yet its commit.
func (d *Decoder) Within() bool { return d.within }

// column says what a column of the table is read into.
type column func(r *row, value []byte, text bool) error

// row is a row of the table of messages.
type row struct {
	m                       Message
	state, attempts, starts int64
	payload, metadata       []byte
}

var (
	errShort   = errors.New("decode the log: a message is shorter than it should be")
	errColumns = errors.New("decode the log: the table of messages has other columns than this version of Postbox knows")
)

// wanted are the columns that a message is made of.
var wanted = map[string]column{
	"id":           number(func(r *row, n int64) { r.m.ID = n }),
	"spool":        number(func(r *row, n int64) { r.m.Spool = n }),
	"created_at":   number(func(r *row, n int64) { r.m.CreatedAt = n }),
	"lane":         number(func(r *row, n int64) { r.m.Lane = int(n) }),
	"key_hash":     number(func(r *row, n int64) { r.m.HasKey, r.m.KeyHash = true, n }),
	"state":        number(func(r *row, n int64) { r.state = n }),
	"attempts":     number(func(r *row, n int64) { r.attempts = n }),
	"starts":       number(func(r *row, n int64) { r.starts = n }),
	"topic":        func(r *row, value []byte, _ bool) error { r.m.Topic = string(value); return nil },
	"message_id":   bytes(func(r *row, value []byte) { r.m.MessageID = string(value) }),
	"ordering_key": bytes(func(r *row, value []byte) { r.m.Key = string(value) }),
	"payload":      bytes(func(r *row, value []byte) { r.payload = value }),
	"metadata":     bytes(func(r *row, value []byte) { r.metadata = value }),
}

func number(into func(r *row, n int64)) column {
	return func(r *row, value []byte, text bool) error {
		var n int64
		var err error
		switch {
		case text:
			n, err = strconv.ParseInt(string(value), 10, 64)
		case len(value) == 2:
			n = int64(int16(binary.BigEndian.Uint16(value))) //nolint:gosec // a smallint
		case len(value) == 4:
			n = int64(int32(binary.BigEndian.Uint32(value))) //nolint:gosec // an integer
		case len(value) == 8:
			n = int64(binary.BigEndian.Uint64(value)) //nolint:gosec // a bigint
		default:
			err = errColumns
		}
		into(r, n)
		return err
	}
}

// bytes reads a bytea, whose text is \x and hexadecimal digits.
func bytes(into func(r *row, value []byte)) column {
	return func(r *row, value []byte, text bool) error {
		if !text {
			into(r, value)
			return nil
		}
		if len(value) < 2 || value[0] != '\\' || value[1] != 'x' {
			return fmt.Errorf("%w: a bytea begins with %.10q", errColumns, value)
		}
		decoded, err := hex.AppendDecode(nil, value[2:])
		into(r, decoded)
		return err
	}
}

// Event is what a message of the stream was.
type Event int

// The kinds of events. Others are no matter of outboxes.
const (
	Other     Event = iota
	Insert          // of a message
	Commit          // of a transaction
	Described       // the columns of the table: before the first insert, and again if the publication may have been altered
	Change          // of an outbox, which the message names, or of all if it names none
)

// Decode decodes one message of the stream. An inserted message may refer to the bytes of data, and has the payload and
// metadata that the row has. After a commit, end is the position in the log up to which everything has been sent.
func (d *Decoder) Decode(data []byte) (event Event, m Message, end uint64, err error) {
	if len(data) == 0 {
		return Other, m, 0, errShort
	}
	from := reader{rest: data[1:]}
	switch data[0] {
	case 'B':
		from.skip(16)
		d.transaction, d.within = from.uint32(), true
	case 'C':
		from.skip(9)
		end = from.uint64()
		event, d.within = Commit, false
	case 'R':
		event, err = d.relation(&from)
	case 'I':
		table := from.uint32()
		if place, told := d.told[table]; told {
			event = Change
			m.Spool, err = change(&from, place)
		} else if table == d.table {
			event = Insert
			m, err = d.insert(&from)
			if err == nil && m.ID == 0 {
				event = Other
			}
		}
	}
	if err == nil && from.short {
		err = errShort
	}
	return event, m, end, err
}

// relation learns where the columns of the table are. The server sends them before the first change, and again after
// the table or any publication was altered, or the table was analyzed.
func (d *Decoder) relation(from *reader) (Event, error) {
	table, names := from.relation()
	if d.told.learn(table, names) || table != d.table {
		return Other, nil
	}
	d.columns, d.found = make([]column, len(names)), 0
	for i, name := range names {
		if d.columns[i] = wanted[name]; d.columns[i] != nil {
			d.found++
		}
	}
	if d.found != len(wanted) && !from.short {
		return Described, errColumns
	}
	return Described, nil
}

// relation returns a table and the names of its columns.
func (r *reader) relation() (table uint32, columns []string) {
	table = r.uint32()
	r.text() // the schema
	r.text() // the name
	r.skip(1)
	columns = make([]string, r.uint16())
	for i := range columns {
		r.skip(1)
		columns[i] = r.text()
		r.skip(8)
	}
	return table, columns
}

// change returns the number in a column of a row, or 0 if there is no such column.
func change(from *reader, place int) (int64, error) {
	if place < 0 {
		return 0, nil
	}
	from.skip(1) // 'N'
	count, r := int(from.uint16()), row{}
	for i := 0; i < count && i <= place; i++ {
		kind := from.byte()
		if kind == 'n' || kind == 'u' {
			continue
		}
		value := from.bytes(int(from.uint32()))
		if i == place && !from.short {
			err := wanted["spool"](&r, value, kind == 't')
			return r.m.Spool, err
		}
	}
	return 0, nil
}

// insert reads a row. The id is 0 if it is not a ready message.
func (d *Decoder) insert(from *reader) (Message, error) {
	from.skip(1) // 'N'
	count := int(from.uint16())
	if count != len(d.columns) {
		return Message{}, errColumns
	}
	r := row{m: Message{Transaction: d.transaction}}
	for _, into := range d.columns {
		kind := from.byte()
		if kind == 'n' || kind == 'u' {
			continue
		}
		value := from.bytes(int(from.uint32()))
		if into == nil || from.short {
			continue
		}
		if err := into(&r, value, kind == 't'); err != nil {
			return Message{}, err
		}
	}
	if r.state != 0 {
		return Message{}, nil
	}
	r.m.Size = len(r.payload) + len(r.metadata)
	if r.attempts == 0 && r.starts == 0 { // otherwise it is no new message, and is left to the poll
		r.m.Payload, r.m.Metadata = r.payload, r.metadata
	}
	return r.m, nil
}

// keep returns the message in the form in which a feed holds it: with a payload of its own, or without one if that is
// larger than the feed allows.
func (m Message) keep(inline int) Message {
	if m.Metadata == nil || m.Size > inline {
		m.Payload, m.Metadata = nil, nil
		return m
	}
	own := slices.Concat(m.Payload, m.Metadata)
	n := len(m.Payload)
	m.Metadata = own[n:]
	if m.Payload != nil { // NULL stays NULL
		m.Payload = own[:n:n]
	}
	return m
}

// reader reads from a message of the stream. short is set if it is at its end too early.
type reader struct {
	rest  []byte
	short bool
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
