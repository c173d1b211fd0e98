package drain

import (
	"database/sql"
	"strconv"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// rowScanner reads the rows of a fetch one after the other. It allocates its destinations once and
// reads the driver's bytes in place. It copies only the bytes that a message keeps, those of many
// messages into one chunk. A destination of another type than int64 would make database/sql convert
// each number through a string.
type rowScanner struct {
	columns []any // destinations of Scan
	row
	topics map[string]string
	words  []byte
	chunk  []byte
}

// row has a field for each column of a fetch.
type row struct {
	state, id, lane, attempts, starts, createdAt, size int64
	hash                                               sql.NullInt64
	topic, messageID, key, metadata                    sql.RawBytes
	payload                                            spool.RawPayload
}

// chunkBytes is small compared with a page, because one message that stays in memory keeps its
// whole chunk there.
const chunkBytes = 16 << 10

func newRowScanner() *rowScanner {
	r := &rowScanner{topics: map[string]string{}}
	r.columns = []any{
		&r.state, &r.id, &r.lane, &r.hash, &r.attempts, &r.starts, &r.topic, &r.messageID, &r.key, &r.createdAt,
		&r.size, &r.metadata, &r.payload,
	}
	return r
}

// message returns a message made from the row that was scanned last.
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

// snapshot returns the snapshot of a read, from a meta row; seen is nil on databases that do not
// tell it. There running is one number, which says whether a mark can be final.
func (r *rowScanner) snapshot() (seen *tail.Snapshot, running []int64, err error) {
	if len(r.messageID) == 0 {
		return nil, []int64{r.id}, nil
	}
	found, err := tail.ParseSnapshot(string(r.messageID))
	return &found, found.Running, err
}

// stored returns the highest id that a meta row tells to be stored, or 0.
func (r *rowScanner) stored() (int64, error) {
	if len(r.metadata) == 0 {
		return 0, nil
	}
	return strconv.ParseInt(string(r.metadata), 10, 64)
}

// intern returns the same string for equal topics.
func (r *rowScanner) intern(topic []byte) string {
	name, known := r.topics[string(topic)]
	if !known {
		name = string(topic)
		r.topics[name] = name
	}
	return name
}

// copy copies bytes so that they outlive the row; nil stays nil. Its result has no spare capacity,
// so appending to it does not overwrite its neighbours.
func (r *rowScanner) copy(bytes []byte) []byte {
	n := len(bytes)
	if bytes == nil {
		return nil
	}
	if n > chunkBytes {
		return append([]byte(nil), bytes...)
	}
	if r.chunk == nil || cap(r.chunk)-len(r.chunk) < n {
		r.chunk = make([]byte, 0, chunkBytes)
	}
	from := len(r.chunk)
	r.chunk = append(r.chunk, bytes...)
	return r.chunk[from : from+n : from+n]
}
