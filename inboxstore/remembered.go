package inboxstore

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/coocood/freecache"
)

// remembered is a cache of the latest claims of messages that this process has handled, so that a
// prompt duplicate costs one SELECT and no transaction. A message that is only stored needs no
// cache, since its claim shares a statement with others. The cache alone is never the answer. A
// promoted standby or a restored backup may have lost a claim together with its effect, and then
// the message must be handled again. The cache contains no pointers, since the garbage collector
// would follow those of all its entries every few thousand messages. Its memory is taken with the
// first claim: a store whose messages are all stored in queues has none. The zero value remembers
// nothing.
type remembered struct {
	bytes int

	allocate sync.Once
	cache    atomic.Pointer[freecache.Cache] // nil before the first claim
}

// claimBytes is the size of a cache entry for a claim whose message id is a UUID or a ULID.
const claimBytes = 64

// remember returns a cache for about this number of claims. For none or fewer, it remembers
// nothing.
func remember(claims int) *remembered {
	return &remembered{bytes: max(claims, 0) * claimBytes}
}

func (r *remembered) add(claim []byte) {
	if r.bytes == 0 {
		return
	}
	r.allocate.Do(func() { r.cache.Store(freecache.NewCache(r.bytes)) })
	_ = r.cache.Load().Set(claim, nil, 0) // Set refuses only entries that are larger than any claim
}

func (r *remembered) has(claim []byte) bool {
	cache := r.cache.Load()
	if cache == nil {
		return false
	}
	_, err := cache.TTL(claim)
	return err == nil
}

func (r *remembered) forget(claim []byte) {
	if cache := r.cache.Load(); cache != nil {
		cache.Del(claim)
	}
}

// handledBefore reports whether a claim that this process remembers is still in the database. After
// an error it reports false, and the transaction that follows finds out. It needs a connection, so
// the caller must not hold one.
func (s *Store) handledBefore(ctx context.Context, claim []byte) bool {
	if !s.remembered.has(claim) {
		return false
	}
	var one int
	err := s.findClaim(ctx, claim).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		s.remembered.forget(claim)
	}
	return err == nil
}

func (s *Store) findClaim(ctx context.Context, claim []byte) *sql.Row {
	if s.core.Prepared != nil {
		if stmt, err := s.core.Prepared.Get(ctx, s.core.Statements.FindClaim); err == nil { //nolint:sqlclosecheck // stays prepared until the store is closed
			return stmt.QueryRowContext(ctx, claim)
		}
	}
	return s.core.DB.QueryRowContext(ctx, s.core.Statements.FindClaim, claim)
}
