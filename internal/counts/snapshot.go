package counts

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Task is the name of the maintenance task that renews the snapshot, and whose progress the snapshot is.
const Task = "counts"

const (
	// maxCounts limits the spools of each part of a snapshot, and its consumers, and maxConsumerBytes the length of
	// their names. MySQL stores up to 64 KB.
	maxCounts        = 60
	maxConsumerBytes = 20_000
)

// Count is an earlier count of a part of a spool that is above the cap.
type Count struct {
	At   int64 `json:"at"`   // when it began, by the database's clock
	Cost int64 `json:"cost"` // µs that its statements took
	N    int   `json:"n"`
	// Parts of N, of waiting messages.
	Due     int `json:"due,omitempty"`
	Failing int `json:"failing,omitempty"`
	Parked  int `json:"parked,omitempty"`
}

// Letters is an earlier count of all unresolved dead letters.
type Letters struct {
	At        int64          `json:"at"`   // as in Count
	Cost      int64          `json:"cost"` // as in Count
	Spools    map[int64]int  `json:"spools,omitempty"`
	Consumers map[string]int `json:"consumers,omitempty"`
	// SpoolsCut and ConsumersCut are set if some were left out, so that one that is missing may have letters.
	SpoolsCut    bool `json:"spools_cut,omitempty"`
	ConsumersCut bool `json:"consumers_cut,omitempty"`
}

// ofSpool returns the number of letters of a spool, and when they were counted; 0 if they were left out.
func (l Letters) ofSpool(id int64) (n int, at int64) { return entryOf(l.Spools, id, l.At, l.SpoolsCut) }

// ofConsumer returns the same for a consumer of inboxes.
func (l Letters) ofConsumer(name string) (n int, at int64) {
	return entryOf(l.Consumers, name, l.At, l.ConsumersCut)
}

func entryOf[K comparable](counts map[K]int, key K, at int64, cut bool) (n int, counted int64) {
	n, known := counts[key]
	if !known && cut {
		return 0, 0
	}
	return n, at
}

// Snapshot has what was counted earlier, by spool. It has only what is above the cap.
type Snapshot struct {
	Ready   map[int64]Count `json:"ready,omitempty"`
	Waiting map[int64]Count `json:"waiting,omitempty"`
	Done    map[int64]Count `json:"done,omitempty"`
	Letters Letters         `json:"letters,omitzero"`
}

// Decode reads the stored form. Whatever it cannot read is no snapshot, and will be replaced.
func Decode(stored []byte) Snapshot {
	var s Snapshot
	if json.Unmarshal(stored, &s) != nil {
		return Snapshot{}
	}
	return s
}

// Encode returns the stored form. It leaves out the smallest numbers if there are too many.
func (s Snapshot) Encode() ([]byte, error) {
	s.Ready, s.Waiting, s.Done = largest(s.Ready), largest(s.Waiting), largest(s.Done)
	spools, consumers := len(s.Letters.Spools), len(s.Letters.Consumers)
	s.Letters.Spools = keep(s.Letters.Spools, itself, func(int64) int { return 0 })
	s.Letters.Consumers = keep(s.Letters.Consumers, itself, encodedLength)
	s.Letters.SpoolsCut = s.Letters.SpoolsCut || len(s.Letters.Spools) < spools
	s.Letters.ConsumersCut = s.Letters.ConsumersCut || len(s.Letters.Consumers) < consumers
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode counts: %w", err)
	}
	return text, nil
}

func itself(n int) int { return n }

func largest(counts map[int64]Count) map[int64]Count {
	return keep(counts, func(c Count) int { return c.N }, func(int64) int { return 0 })
}

// encodedLength is the length of a name in the stored form.
func encodedLength(name string) int {
	text, err := json.Marshal(name)
	if err != nil {
		return maxConsumerBytes
	}
	return len(text)
}

// keep returns the largest entries, as many as there may be, and nil if there are none.
func keep[K comparable, V any](all map[K]V, size func(V) int, length func(K) int) map[K]V {
	if len(all) == 0 {
		return nil
	}
	keys := make([]K, 0, len(all))
	for key := range all {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b K) int { return size(all[b]) - size(all[a]) })
	kept, bytes := make(map[K]V, min(len(keys), maxCounts)), 0
	for _, key := range keys {
		if bytes += length(key); len(kept) == maxCounts || bytes > maxConsumerBytes {
			break
		}
		kept[key] = all[key]
	}
	return kept
}

// stored returns the snapshot in the database, which is empty if no process has counted.
func stored(ctx context.Context, db *sql.DB, statements *dialect.Statements) (Snapshot, error) {
	var text []byte
	err := db.QueryRowContext(ctx, statements.ChoreCursor, Task).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return Snapshot{}, nil
	}
	return Decode(text), err
}
