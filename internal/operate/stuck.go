package operate

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/counts"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

const (
	// maxBehind limits how many messages of all lanes together are looked at to count those that wait behind stuck keys.
	maxBehind = 20_000
	// maxStuckCounted limits how many retrying messages [Operator.countStuck] looks at.
	maxStuckCounted = 1000
	// headsTogether is how many heads one statement describes. SQLite takes no more than 500.
	headsTogether = 100
)

// StuckKey is a key whose first message has failed, or which is paused.
type StuckKey struct {
	Key         string
	Head        *Listed
	Since       time.Time // the head's first failure, or the pause
	Error       string    // of the last failure; empty for none
	PausedSince time.Time
	// Behind is the number of ready messages after the head. AtLeast is set if not all were looked at.
	Behind  int
	AtLeast bool

	hash int64
	at   dialect.Head // its id is 0 as long as it is not known
}

// StuckKeys returns the stuck keys of a spool whose heads were written first, at most this number, the one that has been stuck
// longest first. All its statements have limits.
func (o *Operator) StuckKeys(ctx context.Context, name string, limit int) ([]*StuckKey, error) {
	s, err := o.find(ctx, name)
	if err != nil {
		return nil, failedTo("list stuck keys of", name, err)
	}
	keys, err := o.stuckKeys(ctx, s, limit)
	if err != nil {
		return nil, failedTo("list stuck keys of", name, err)
	}
	return keys, nil
}

func (o *Operator) stuckKeys(ctx context.Context, s *spool.Spool, limit int) ([]*StuckKey, error) {
	keys, err := o.heads(ctx, o.statements.StuckHeads(s.ID(), dialect.Lanes, limit))
	if err != nil {
		return nil, err
	}
	known := make(map[string]*StuckKey, len(keys))
	for _, k := range keys {
		known[k.Key] = k
	}
	paused, err := o.PausedKeys(ctx, s.Name())
	if err != nil {
		return nil, err
	}
	for _, p := range paused[:min(limit, len(paused))] {
		if known[p.Key] == nil {
			hash := postbox.KeyHash(p.Key)
			known[p.Key] = &StuckKey{Key: p.Key, hash: hash, at: dialect.Head{Lane: spool.LaneOf(hash)}}
			keys = append(keys, known[p.Key])
		}
		known[p.Key].PausedSince = p.Since
	}
	if err := o.countBehind(ctx, s, keys, known); err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(keys, func(k *StuckKey) bool { return k.at.ID == 0 })
	slices.SortFunc(keys, func(a, b *StuckKey) int { return cmp.Compare(a.at.ID, b.at.ID) })
	return o.describe(ctx, s, keys[:min(limit, len(keys))])
}

// heads reads messages that are the first ones of their keys.
func (o *Operator) heads(ctx context.Context, query dialect.Query) (keys []*StuckKey, err error) {
	err = eachRow(ctx, o.db, query, func(rows *sql.Rows) error {
		k, failed := &StuckKey{Head: &Listed{}}, int64(0)
		if err := k.Head.scan(rows.Scan, &k.hash, &failed, &k.Error); err != nil {
			return err
		}
		k.Key, k.at = k.Head.Key, dialect.Head{Lane: int(k.Head.Place.Lane), ID: k.Head.Place.ID}
		if failed != 0 {
			k.Since = time.UnixMicro(failed)
		}
		keys = append(keys, k)
		return nil
	})
	return keys, err
}

// countBehind counts the ready messages of keys, among so many of their lanes. It also finds the
// heads of paused keys.
func (o *Operator) countBehind(ctx context.Context, s *spool.Spool, keys []*StuckKey, known map[string]*StuckKey) error {
	if len(keys) == 0 {
		return nil
	}
	lanes, looked := map[int]*dialect.KeysOfLane{}, map[int]int{}
	for _, k := range keys {
		l := lanes[k.at.Lane]
		if l == nil {
			l = &dialect.KeysOfLane{Lane: k.at.Lane, After: k.at.ID}
			lanes[k.at.Lane] = l
		}
		l.After, l.Keys = min(l.After, k.at.ID), append(l.Keys, k.hash)
	}
	limit := maxBehind / len(lanes)
	query := o.statements.WaitingOfKeys(s.ID(), slices.Collect(maps.Values(lanes)), limit)
	err := eachRow(ctx, o.db, query, func(rows *sql.Rows) error {
		var key []byte
		var first int64
		var lane, n int
		if err := rows.Scan(&lane, &key, &first, &n); err != nil {
			return err
		}
		looked[lane] += n
		switch k := known[string(key)]; {
		case k == nil: // other keys
		case k.at.ID == 0: // a paused key: the first of these messages is its head
			k.at.ID, k.Behind = first, n-1
		default:
			k.Behind = n
		}
		return nil
	})
	for _, k := range keys {
		k.AtLeast = looked[k.at.Lane] >= limit
	}
	return err
}

// describe reads the heads that are ready, and leaves out keys whose heads are gone meanwhile. It
// sorts the keys by since when they are stuck.
func (o *Operator) describe(ctx context.Context, s *spool.Spool, keys []*StuckKey) ([]*StuckKey, error) {
	ready := map[int64]*StuckKey{}
	var heads []dialect.Head
	for _, k := range keys {
		if k.Head == nil {
			ready[k.at.ID], heads = k, append(heads, k.at)
		}
	}
	for part := range slices.Chunk(heads, headsTogether) {
		found, err := o.heads(ctx, o.statements.ReadyHeads(s.ID(), part))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			k := ready[f.at.ID]
			k.Head, k.Since, k.Error = f.Head, f.Since, f.Error
		}
	}
	keys = slices.DeleteFunc(keys, func(k *StuckKey) bool { return k.Head == nil })
	for _, k := range keys {
		if k.Since.IsZero() { // the record of the failure is not kept any more, or it has not failed
			k.Since = cmp.Or(k.PausedSince, k.Head.CreatedAt)
		}
	}
	slices.SortStableFunc(keys, func(a, b *StuckKey) int { return a.Since.Compare(b.Since) })
	return keys, nil
}

// countStuck counts the keys of each of these spools that have a retrying message.
func (o *Operator) countStuck(ctx context.Context, ids []int64, spools map[int64]*Overview) error {
	found := make(map[int64]bool, len(ids))
	count := func(queries []dialect.Query) error {
		for _, query := range queries {
			err := eachRow(ctx, o.db, query, func(rows *sql.Rows) error {
				var id, age int64
				var keys int
				if err := rows.Scan(&id, &keys, &age); err != nil {
					return err
				}
				found[id] = true
				spools[id].StuckKeys, spools[id].StuckAge = keys, time.Duration(max(age, 0))*time.Microsecond
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := count(o.statements.CountFewStuck(ids, maxStuckCounted+1)); err != nil {
		return err
	}
	return count(o.statements.CountStuck(counts.Without(ids, found), maxStuckCounted))
}
