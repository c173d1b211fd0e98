package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/admin/internal/counts"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// StuckKey is an ordering key of which nothing is handled now: its first message has failed and
// waits for its next attempt, or is parked, or an operator has paused the key.
type StuckKey struct {
	Key string
	// Head is the first message of the key, without payload, metadata and failures. Its status is
	// Retrying or Parked, or, if the key is paused, also Ready. DueAt is its next attempt.
	Head Message
	// Since is when the head failed for the first time, or when the key was paused if the head has
	// not failed. If the record of that failure is not kept any more, it is when the head was
	// written. All times are of the database's clock.
	Since time.Time
	// Error is the text of the head's last failure, or "" if it has not failed.
	Error string
	// PausedSince is when an operator paused the key; it is zero if the key is not paused.
	PausedSince time.Time
	// Behind is the number of ready messages of the key that wait behind the head. In a queue that
	// is Unordered they do not wait.
	Behind int
	// MoreBehind is true if Behind is a lower bound, since not all messages were looked at.
	MoreBehind bool
}

// StuckKeys lists the stuck keys of the filter's outbox or queue, up to its limit, as one page. If
// there are more, it has those whose heads were written first. The key that has been stuck for
// longest comes first. A message that failed and is tried again soon is in the list, too: its DueAt
// says when. Keys that wait only because a topic is paused are not.
//
// With [Filter.ID], that of a dead letter which is not resolved, it has the key of this letter
// alone, stuck or not, in the outbox or queue where the letter is requeued, if a message of the key
// is ready or has failed there. A requeued letter comes after the head and those behind it.
//
// Use it to find what to act on: [Admin.Reschedule] or [Admin.Bury] for the head, and
// [Admin.Resume] for a paused or parked key.
//
// The cost is bounded however many keys are stuck and however many messages wait: it takes
// five statements, and one for each 100 paused keys, and looks at 20,000 messages at most to count
// those that wait. A paused key without a message among these is left out.
func (a *Admin) StuckKeys(ctx context.Context, filter Filter) ([]StuckKey, error) {
	target := filter.Target
	most, err := filter.listed(stuckKeys)
	if filter.After != "" {
		err = errors.Join(err, errors.New("after: the list has one page"))
	}
	if err != nil {
		return nil, fmt.Errorf("admin: list stuck keys of %s: %w", target, invalid(err))
	}
	key := ""
	if filter.ID != 0 {
		letter, err := a.letters.read(ctx, a.db, filter.ID)
		if err = errors.Join(filter.alone(deadLetters), err); err != nil {
			return nil, failed(err)
		}
		if key = letter.Key; key == "" || !letter.ResolvedAt.IsZero() {
			return nil, nil
		}
		target = cmp.Or(letter.Target, Outbox(a.config.Outbox))
	}
	s, err := a.operator.find(ctx, target.stored())
	if err != nil {
		return nil, failed(failedTo("list stuck keys of", target.stored(), err))
	}
	found, err := a.operator.stuckKeys(ctx, s, key, most)
	if err != nil {
		return nil, failed(failedTo("list stuck keys of", target.stored(), err))
	}
	keys := make([]StuckKey, len(found))
	for i, k := range found {
		keys[i] = k.StuckKey
	}
	return keys, nil
}

const (
	// maxBehind limits how many messages of all lanes together are looked at to count those that
	// wait behind stuck keys.
	maxBehind = 20_000
	// maxStuckCounted limits how many retrying messages [operator.countStuck] looks at.
	maxStuckCounted = 1000
	// headsTogether is how many heads one statement describes. SQLite takes no more than 500.
	headsTogether = 100
)

// stuckHead is a stuck key, and where its first message is.
type stuckHead struct {
	StuckKey

	hash int64
	at   operatorsql.Head // its id is 0 as long as it is not known
}

// stuckKeys returns the stuck keys of a spool whose heads were written first, at most this number,
// the one that has been stuck longest first, or the one key. All its statements have limits.
func (o *operator) stuckKeys(ctx context.Context, s *spool.Spool, only string, limit int) (keys []*stuckHead, err error) {
	if only != "" {
		keys, err = o.ofKey(ctx, s, only)
	} else {
		keys, err = o.heads(ctx, o.statements.StuckHeads(s.ID(), limit))
	}
	if err != nil {
		return nil, err
	}
	known := make(map[string]*stuckHead, len(keys))
	for _, k := range keys {
		known[k.Key] = k
	}
	paused, err := o.PausedKeys(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, p := range paused[:min(limit, len(paused))] {
		if known[p.Key] == nil && only == "" {
			hash := keyhash.Of(p.Key)
			known[p.Key] = &stuckHead{StuckKey: StuckKey{Key: p.Key}, hash: hash, at: operatorsql.Head{Lane: spool.LaneOf(hash)}}
			keys = append(keys, known[p.Key])
		}
		if k := known[p.Key]; k != nil {
			k.PausedSince = p.Since
		}
	}
	if only == "" {
		err = o.countBehind(ctx, s, keys, known)
	}
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(keys, func(k *stuckHead) bool { return k.at.ID == 0 })
	slices.SortFunc(keys, func(a, b *stuckHead) int { return cmp.Compare(a.at.ID, b.at.ID) })
	return o.describe(ctx, s, keys[:min(limit, len(keys))])
}

// heads reads messages that are the first ones of their keys.
func (o *operator) heads(ctx context.Context, query dialect.Query) (keys []*stuckHead, err error) {
	err = spool.Each(ctx, o.db, query, func(scan spool.Scan) error {
		k, head, failed := &stuckHead{}, &storedMessage{}, int64(0)
		if err := head.scan(scan, &k.hash, &failed, &k.Error); err != nil {
			return err
		}
		k.Key, k.Head, k.at = head.Key, head.Message, operatorsql.Head{Lane: int(head.Place.Lane), ID: head.Place.ID}
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
func (o *operator) countBehind(ctx context.Context, s *spool.Spool, keys []*stuckHead, known map[string]*stuckHead) error {
	if len(keys) == 0 {
		return nil
	}
	var after [dialect.Lanes]*int64
	hashes, lanes, looked := make([]int64, len(keys)), 0, map[int]int{}
	for i, k := range keys {
		hashes[i] = k.hash
		switch first := after[k.at.Lane]; {
		case first == nil:
			after[k.at.Lane], lanes = &k.at.ID, lanes+1
		case k.at.ID < *first:
			after[k.at.Lane] = &k.at.ID
		}
	}
	limit := maxBehind / lanes
	query := o.statements.WaitingOfKeys(s.ID(), hashes, after, limit)
	err := spool.Each(ctx, o.db, query, func(scan spool.Scan) error {
		var key []byte
		var first int64
		var lane, n int
		if err := scan(&lane, &key, &first, &n); err != nil {
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
		k.MoreBehind = looked[k.at.Lane] >= limit
	}
	return err
}

// ofKey returns a key with all its messages that are not scheduled, stuck or not, if there are any.
func (o *operator) ofKey(ctx context.Context, s *spool.Spool, key string) ([]*stuckHead, error) {
	ref, failed := keyOf(s, key), dialect.StateRetrying
	k := &stuckHead{StuckKey: StuckKey{Key: key}, hash: ref.Hash, at: operatorsql.Head{Lane: spool.LaneOf(ref.Hash)}}
	tried, err := o.listed(ctx, o.db, o.statements.RetryingOfKey(ref, operatorsql.MessageFilter{States: [2]int{failed, failed}, Limit: maxLimit}))
	if err != nil {
		return nil, err
	}
	if err := o.countBehind(ctx, s, []*stuckHead{k}, map[string]*stuckHead{key: k}); err != nil {
		return nil, err
	}
	if len(tried) > 0 {
		if k.at.ID != 0 { // it is behind those that have failed
			k.Behind++
		}
		failures, err := o.failuresOf(ctx, tried[0])
		if err != nil {
			return nil, err
		}
		for _, f := range slices.Backward(failures) {
			k.Since, k.Error = f.At, cmp.Or(k.Error, f.Error)
		}
		k.Head, k.at.ID, k.Behind = tried[0].Message, tried[0].ID, k.Behind+len(tried)-1
	}
	return []*stuckHead{k}, nil
}

// describe reads the heads that are ready, and leaves out keys whose heads are gone meanwhile. It
// sorts the keys by since when they are stuck.
func (o *operator) describe(ctx context.Context, s *spool.Spool, keys []*stuckHead) ([]*stuckHead, error) {
	ready := map[int64]*stuckHead{}
	var heads []operatorsql.Head
	for _, k := range keys {
		if k.Head.ID == 0 {
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
	keys = slices.DeleteFunc(keys, func(k *stuckHead) bool { return k.Head.ID == 0 })
	for _, k := range keys {
		if k.Since.IsZero() { // the record of the failure is not kept any more, or it has not failed
			k.Since = cmp.Or(k.PausedSince, k.Head.CreatedAt)
		}
	}
	slices.SortStableFunc(keys, func(a, b *stuckHead) int { return a.Since.Compare(b.Since) })
	return keys, nil
}

// countStuck counts the keys of each of these spools that have a retrying message.
func (o *operator) countStuck(ctx context.Context, ids []int64, spools map[int64]*overview) error {
	return counts.OfEach(ctx, o.db, o.statements.Kind, ids, maxStuckCounted, o.statements.CountFewStuck, o.statements.CountStuck, func(scan spool.Scan) (id int64, err error) {
		var age int64
		var keys int
		if err := scan(&id, &keys, &age); err != nil {
			return 0, err
		}
		spools[id].StuckKeys, spools[id].StuckAge = keys, time.Duration(max(age, 0))*time.Microsecond
		return id, nil
	})
}
