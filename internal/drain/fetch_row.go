package drain

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// rowScanner reads the rows of a fetch one after the other. Its destinations are made once, and the driver's bytes are
// looked at where they are: what a message keeps is copied, the bytes of many messages into one chunk. A destination of
// another type than int64 would cost database/sql a detour through a string for each number.
type rowScanner struct {
	columns []any // where Scan puts them

	state, id, lane, attempts, starts, createdAt, size int64
	hash                                               sql.NullInt64
	topic, messageID, key, metadata, payload           sql.RawBytes

	topics map[string]string
	words  []byte
	chunk  []byte
}

// chunkBytes is small beside a page: one message that stays in memory keeps the whole chunk there.
const chunkBytes = 16 << 10

func newRowScanner() *rowScanner {
	r := &rowScanner{topics: map[string]string{}}
	r.columns = []any{
		&r.state, &r.id, &r.lane, &r.hash, &r.attempts, &r.starts, &r.topic, &r.messageID, &r.key, &r.createdAt,
		&r.size, &r.metadata, &r.payload,
	}
	return r
}

// message makes a message of the row that was scanned last.
func (r *rowScanner) message(of *lane, unordered bool) *spool.Message {
	m := &spool.Message{
		Ref:       dialect.Ref{State: int(r.state), Lane: int(r.lane), Token: of.token, ID: r.id, CreatedAt: r.createdAt},
		Topic:     r.intern(r.topic),
		HasKey:    r.hash.Valid && !unordered,
		KeyHash:   r.hash.Int64,
		CreatedAt: time.UnixMicro(r.createdAt),
		Attempts:  int(r.attempts),
		Starts:    int(r.starts),
		Size:      int(r.size),
	}
	r.words = append(append(r.words[:0], r.messageID...), r.key...)
	words := string(r.words)
	m.MessageID, m.Key = words[:len(r.messageID)], words[len(r.messageID):]
	if r.metadata != nil {
		m.Decode(r.copy(r.payload), r.metadata)
	}
	return m
}

// running returns the transactions that ran when the snapshot was taken, from a meta row: on PostgreSQL all of them, from the
// text of the snapshot, xmin:xmax:xip,xip. The other databases name one, by which they say whether a mark can be final.
func (r *rowScanner) running() ([]int64, error) {
	text := string(r.messageID)
	if text == "" {
		return []int64{r.id}, nil
	}
	list := text[strings.LastIndexByte(text, ':')+1:]
	if list == "" {
		return nil, nil
	}
	var running []int64
	for word := range strings.SplitSeq(list, ",") {
		transaction, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read snapshot %q: %w", text, err)
		}
		running = append(running, transaction)
	}
	return running, nil
}

// intern returns the same string for the same topic.
func (r *rowScanner) intern(topic []byte) string {
	name, known := r.topics[string(topic)]
	if !known {
		name = string(topic)
		r.topics[name] = name
	}
	return name
}

// copy keeps bytes beyond the row. What is appended to them does not reach their neighbours.
func (r *rowScanner) copy(bytes []byte) []byte {
	n := len(bytes)
	if n > chunkBytes {
		return append([]byte(nil), bytes...)
	}
	if cap(r.chunk)-len(r.chunk) < n {
		r.chunk = make([]byte, 0, chunkBytes)
	}
	from := len(r.chunk)
	r.chunk = append(r.chunk, bytes...)
	return r.chunk[from : from+n : from+n]
}
