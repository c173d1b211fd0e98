package dialect

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// mysqlRows writes the values of several rows into the text of an INSERT. As arguments they would
// cost the server and the driver a description of each, and a round trip to prepare a text that is
// executed once.
//
// What a user has given is written as hexadecimal digits, so that no setting of a session can make
// anything else of it.
type mysqlRows struct{ head, claimHead, now, holdWriter string }

// maxWritten is the number of bytes that are written into the text of a statement, where each takes
// two. A larger one has arguments: the longest packet that a server takes bounds each argument, and
// not all of them.
const maxWritten = 1 << 20

// append returns an INSERT of rows, or false if it cannot be written.
func (w mysqlRows) append(spool int64, rows []Row) (Query, bool) {
	size := 0
	for _, row := range rows {
		size += len(row.Topic) + len(row.MessageID) + len(row.Key) + len(row.Payload) + len(row.Metadata)
		if size > maxWritten || !inAnyCharset(row.Topic) {
			return Query{}, false
		}
	}
	text := slices.Grow([]byte(w.head), 2*size+len(rows)*(len(w.now)+writtenRow))
	for i, row := range rows {
		text = between(text, i)
		for _, number := range []int64{spool, int64(row.Lane), int64(row.State)} {
			text = append(strconv.AppendInt(text, number, 10), ", "...)
		}
		if row.KeyHash == nil {
			text = append(text, "NULL"...)
		} else {
			text = strconv.AppendInt(text, *row.KeyHash, 10)
		}
		text = w.appendDue(append(text, ", "...), row)
		text = append(append(text, ", "...), w.now...)
		for _, value := range [][]byte{[]byte(row.Topic), row.MessageID, row.Key, row.Payload, row.Metadata} {
			text = appendHex(append(text, ", "...), value)
		}
		text = append(text, ", "...)
		if i == 0 {
			text = append(append(text, w.holdWriter...), ')')
		} else {
			text = append(text, "0)"...)
		}
	}
	return Query{Text: string(text), Once: true}, true
}

// writtenRow is about the number of bytes of a row besides the values of its message and the clock.
const writtenRow = 128

// appendDue writes the time at which a message is due. A ready message has none: another reading of
// the clock would cost a tenth of its insert.
func (w mysqlRows) appendDue(text []byte, row Row) []byte {
	switch {
	case row.Due > 0:
		return strconv.AppendInt(text, row.Due, 10)
	case row.State == StateReady:
		return append(text, '0')
	default:
		return strconv.AppendInt(append(append(text, w.now...), " + "...), row.Delay, 10)
	}
}

// claim returns an INSERT of claims, or false if it cannot be written.
func (w mysqlRows) claim(claims [][]byte) (Query, bool) {
	size := len(bytes.Join(claims, nil))
	if size > maxWritten {
		return Query{}, false
	}
	text := slices.Grow([]byte(w.claimHead), 2*size+len(claims)*(len(w.now)+len("(X'', ), ")))
	for i, claim := range claims {
		text = append(appendHex(between(text, i), claim), ", "...)
		text = append(append(text, w.now...), ')')
	}
	return Query{Text: string(text), Once: true}, true
}

// between begins a row.
func between(text []byte, i int) []byte {
	if i > 0 {
		text = append(text, ", "...)
	}
	return append(text, '(')
}

// appendHex writes a value of bytes, or NULL.
func appendHex(text, value []byte) []byte {
	if value == nil {
		return append(text, "NULL"...)
	}
	return append(hex.AppendEncode(append(text, "X'"...), value), '\'')
}

// inAnyCharset reports whether a text has the same bytes in each character set that a connection
// may have. The server stores bytes that are written as digits without a conversion, which an
// argument gets.
func inAnyCharset(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._:/ ", r)
	})
}

func (m mysql) append(spool int64, rows []Row) []Query {
	if len(rows) > 1 {
		if query, ok := m.rows.append(spool, rows); ok {
			return []Query{query}
		}
	}
	return m.repeated.append(spool, rows)
}

func (m mysql) ingest(spool int64, claims [][]byte, rows []Row) Ingest {
	if len(claims) > 1 {
		sorted := slices.SortedFunc(slices.Values(claims), bytes.Compare)
		if claim, ok := m.rows.claim(sorted); ok {
			return Ingest{Claim: []Query{claim}, Claimed: m.claimed(sorted)}
		}
	}
	return m.repeated.ingest(spool, claims, rows)
}
