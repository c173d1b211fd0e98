package operate

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
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
	lane int
	id   int64 // of the head
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
	byLane := map[int][]*StuckKey{}
	known := map[string]*StuckKey{}
	layout := s.Layout() // a message in an old lane waits until it is moved, and then it is found
	for lane := layout.First; lane < layout.Next(); lane++ {
		heads, err := o.stuckHeads(ctx, dialect.StuckParams{Spool: s.ID(), Lane: lane, Limit: limit})
		if err != nil {
			return nil, err
		}
		for _, k := range heads {
			byLane[lane], known[k.Key] = append(byLane[lane], k), k
		}
	}
	paused, err := o.PausedKeys(ctx, s.Name())
	if err != nil {
		return nil, err
	}
	for _, p := range paused[:min(limit, len(paused))] {
		hash := postbox.KeyHash(p.Key)
		if known[p.Key] == nil {
			lane := spool.LaneOf(layout, hash)
			known[p.Key] = &StuckKey{Key: p.Key, hash: hash, lane: lane}
			byLane[lane] = append(byLane[lane], known[p.Key])
		}
		known[p.Key].PausedSince = p.Since
	}
	keep(byLane, limit)
	for lane, keys := range byLane {
		if err := o.countBehind(ctx, s, lane, keys, maxBehind/len(byLane)); err != nil {
			return nil, err
		}
	}
	return o.describe(ctx, s, byLane, limit)
}

// keep leaves the keys whose heads were written first, and the paused ones whose heads are not known yet.
func keep(byLane map[int][]*StuckKey, limit int) {
	all := firstOf(byLane, limit)
	chosen := make(map[*StuckKey]bool, len(all))
	for _, k := range all {
		chosen[k] = true
	}
	for lane, keys := range byLane {
		keys = slices.DeleteFunc(keys, func(k *StuckKey) bool { return !chosen[k] && k.id != 0 })
		if byLane[lane] = keys; len(keys) == 0 {
			delete(byLane, lane)
		}
	}
}

func firstOf(byLane map[int][]*StuckKey, limit int) []*StuckKey {
	var all []*StuckKey
	for _, keys := range byLane {
		for _, k := range keys {
			if k.id != 0 {
				all = append(all, k)
			}
		}
	}
	slices.SortFunc(all, func(a, b *StuckKey) int { return cmp.Compare(a.id, b.id) })
	return all[:min(limit, len(all))]
}

func (o *Operator) stuckHeads(ctx context.Context, p dialect.StuckParams) (keys []*StuckKey, err error) {
	query := o.statements.StuckHeads(p)
	rows, err := o.db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		k, key := &StuckKey{lane: p.Lane}, []byte(nil)
		if err := rows.Scan(&k.id, &k.hash, &key); err != nil {
			return nil, err
		}
		k.Key = string(key)
		keys = append(keys, k)
	}
	return keys, rows.Err()
}

// countBehind counts the ready messages of keys of a lane, among so many of the lane. It also finds the heads of paused keys.
func (o *Operator) countBehind(ctx context.Context, s *spool.Spool, lane int, keys []*StuckKey, limit int) error {
	of := map[string]*StuckKey{}
	params := dialect.WaitingOfKeysParams{StuckParams: dialect.StuckParams{Spool: s.ID(), Lane: lane, After: keys[0].id, Limit: limit}}
	for _, k := range keys {
		of[k.Key] = k
		params.After, params.Keys = min(params.After, k.id), append(params.Keys, k.hash)
	}
	query := o.statements.WaitingOfKeys(params)
	rows, err := o.db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	looked := 0
	for rows.Next() {
		var key []byte
		var first int64
		var n int
		if err := rows.Scan(&key, &first, &n); err != nil {
			return err
		}
		looked += n
		switch k := of[string(key)]; {
		case k == nil: // other keys
		case k.id == 0: // a paused key: the first of these messages is its head
			k.id, k.Behind = first, n-1
		default:
			k.Behind = n
		}
	}
	for _, k := range keys {
		k.AtLeast = looked >= limit
	}
	return rows.Err()
}

// describe reads the heads. It leaves out keys whose heads are gone meanwhile.
func (o *Operator) describe(ctx context.Context, s *spool.Spool, byLane map[int][]*StuckKey, limit int) ([]*StuckKey, error) {
	keys := firstOf(byLane, limit)
	found := keys[:0]
	for _, k := range keys {
		query := o.statements.HeadOfKey(dialect.Lookup{Spool: s.ID(), ID: k.id}, k.lane)
		var failed int64
		k.Head = &Listed{}
		err := k.Head.scan(o.db.QueryRowContext(ctx, query.Text, query.Args...).Scan, &failed, &k.Error)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch {
		case failed != 0:
			k.Since = time.UnixMicro(failed)
		case !k.PausedSince.IsZero():
			k.Since = k.PausedSince
		default: // the record of the failure is not kept any more
			k.Since = k.Head.CreatedAt
		}
		found = append(found, k)
	}
	slices.SortStableFunc(found, func(a, b *StuckKey) int { return a.Since.Compare(b.Since) })
	return found, nil
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
