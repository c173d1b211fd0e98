package spool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/unique"
)

// SetUnique applies the metadata of unique.Key, and removes it from the draft. A message
// without an ordering key gets its unique key as one: only within an ordering key is a message that
// replaces another one published after it.
func (d *Draft) SetUnique(metadata message.Metadata) error {
	key, hasKey := metadata[unique.Key]
	mode, hasMode := metadata[unique.Mode]
	if !hasKey && !hasMode {
		return nil
	}
	if key == "" {
		return errors.New("the unique key is empty: name one, or publish the message without postbox.SkipIfWaiting and postbox.ReplaceWaiting")
	}
	if mode != unique.Skip && mode != unique.Replace {
		return fmt.Errorf("metadata %s is neither %q nor %q: use postbox.SkipIfWaiting or postbox.ReplaceWaiting",
			unique.Mode, unique.Skip, unique.Replace)
	}
	if n := len(key); n > maxBytes {
		return fmt.Errorf("the unique key has %d bytes, the limit is %d: use a shorter one, such as a hash of it", n, maxBytes)
	}
	d.UniqueKey, d.Replace = key, mode == unique.Replace
	d.Metadata = maps.Clone(d.Metadata)
	delete(d.Metadata, unique.Key)
	delete(d.Metadata, unique.Mode)
	if d.Key == "" {
		d.Key = key
	}
	return nil
}

// digest returns the unique key of a draft in a spool, as it is stored.
func (d *Draft) digest(spool int64) []byte { return UniqueDigest(spool, d.Topic, d.UniqueKey) }

// UniqueDigest returns a unique key as it is stored.
func UniqueDigest(spool int64, topic, key string) []byte {
	text := binary.BigEndian.AppendUint64(nil, uint64(spool)) //nolint:gosec // the bits are meant
	text = binary.BigEndian.AppendUint64(text, uint64(len(topic)))
	text = append(append(text, topic...), key...)
	sum := sha256.Sum256(text)
	return sum[:]
}

// ResultRunner executes a query like a [Runner], and returns its result.
type ResultRunner func(ctx context.Context, db Executor, query dialect.Query) (sql.Result, error)

// Unprepared is a [ResultRunner] that prepares nothing.
func Unprepared(ctx context.Context, db Executor, query dialect.Query) (sql.Result, error) {
	return db.ExecContext(ctx, query.Text, query.Args...)
}

// AppendUnique is [Spool.Append] for drafts of which some have unique keys. It returns the
// positions of the drafts that it has left out, as far as the executor reports how many rows a
// statement has changed. Run it in a transaction.
//
// It locks the keys in the order of their digests. So there is no deadlock between two calls, but
// there may be one between two transactions that call it several times.
func (s *Spool) AppendUnique(ctx context.Context, db Executor, run ResultRunner, drafts []Draft) (skipped []int, err error) {
	into, err := s.OpenIn(ctx, db)
	if err != nil {
		return nil, err
	}
	execute := func(ctx context.Context, db Executor, query dialect.Query) error {
		_, err := run(ctx, db, query)
		return err
	}
	free, err := s.lockUnique(ctx, db, run, into, drafts)
	if err != nil {
		return nil, Wrap(fmt.Sprintf("lock unique keys of spool %q", s.name), err)
	}
	for i := 0; i < len(drafts); {
		plain := slices.IndexFunc(drafts[i:], func(d Draft) bool { return d.UniqueKey != "" })
		if plain < 0 {
			plain = len(drafts) - i
		}
		if plain > 0 { // the messages keep their order
			if err := s.Append(ctx, db, execute, drafts[i:i+plain]); err != nil {
				return nil, err
			}
			i += plain
			continue
		}
		stored, err := s.appendUnique(ctx, db, run, into, drafts[i], free)
		if err != nil {
			return nil, Wrap(fmt.Sprintf("append to spool %q under a unique key", s.name), err)
		}
		if !stored {
			skipped = append(skipped, i)
		}
		i++
	}
	return skipped, nil
}

// lockUnique locks the unique keys of drafts in one order, if there are several. It returns the
// digests of those that are known to be new, as far as [dialect.Unique] has a StoreFree.
func (s *Spool) lockUnique(ctx context.Context, db Executor, run ResultRunner, id int64, drafts []Draft) (free map[string]bool, err error) {
	var digests [][]byte
	for _, d := range drafts {
		if d.UniqueKey != "" {
			digests = append(digests, d.digest(id))
		}
	}
	if len(digests) < 2 {
		return nil, nil // it is locked when its message is stored
	}
	free = map[string]bool{}
	slices.SortFunc(digests, bytes.Compare)
	for _, digest := range slices.CompactFunc(digests, bytes.Equal) {
		query := s.Statements.LockUnique(id, digest)
		if query.Text == "" {
			return nil, nil
		}
		result, err := run(ctx, db, query)
		if err != nil {
			return nil, err
		}
		if n, known := changed(result); known && n > 0 {
			free[string(digest)] = true
		}
	}
	return free, nil
}

// changed returns how many rows a statement has changed, if its result tells.
func changed(result sql.Result) (rows int64, known bool) {
	if result == nil { // that of another library may be
		return 0, false
	}
	rows, err := result.RowsAffected()
	return rows, err == nil
}

// errUnknownFate is returned for a message whose receipts are awaited. They would be awaited of a
// message that was skipped, and then reported as missing.
var errUnknownFate = errors.New("receipts of the message are awaited, but the transaction does not tell whether the message was skipped: " +
	"give postbox.ExecFunc a function whose result has a method RowsAffected() int64, or use postbox.ReplaceWaiting")

// appendUnique stores one message under its unique key, and reports whether it did. If that is not
// known, it reports true, or returns an error if receipts of the message are awaited. A key of free
// is new, and locked.
func (s *Spool) appendUnique(ctx context.Context, db Executor, run ResultRunner, into int64, draft Draft, free map[string]bool) (stored bool, err error) {
	row, err := newRow(draft)
	if err != nil {
		return false, err
	}
	row.Lane = s.laneOf(row.KeyHash)
	digest := draft.digest(into)
	unique := s.Statements.AppendUnique(dialect.UniqueParams{Spool: into, Digest: digest, Replace: draft.Replace, Row: row})
	isFree := unique.StoreFree.Text != "" && free[string(digest)]
	delete(free, string(digest)) // from now on it has a message
	for i := 0; i < len(unique.Before) && !isFree; i++ {
		result, err := run(ctx, db, unique.Before[i])
		if err != nil {
			return false, err
		}
		n, known := changed(result)
		isFree = unique.StoreFree.Text != "" && known && n > 0
	}
	store := unique.Store
	if isFree {
		store = unique.StoreFree
	}
	result, err := run(ctx, db, store)
	if err != nil {
		return false, err
	}
	n, known := changed(result)
	if !known && draft.Awaited && !draft.Replace {
		return false, postbox.Permanent(errUnknownFate)
	}
	for _, query := range unique.After {
		if _, err := run(ctx, db, query); err != nil {
			return false, err
		}
	}
	return draft.Replace || !known || n > 0, nil
}
