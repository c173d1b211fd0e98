package inboxstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/coocood/freecache"
)

// remembered is a cache of the latest claims of messages that this process has handled, so that a prompt duplicate costs one
// SELECT and no transaction. A message that is only stored needs no cache, since its claim shares a statement with others. The cache alone is never the answer. A promoted standby or a restored backup may have lost
// a claim together with its effect, and then the message must be handled again. The cache contains no pointers, since
// the garbage collector would follow those of all its entries every few thousand messages. The zero value remembers
// nothing.
type remembered struct{ cache *freecache.Cache }

// claimBytes is the size of a cache entry for a claim whose message id is a UUID or a ULID.
const claimBytes = 64

// remember returns a cache for about this number of claims, or an empty one.
func remember(claims int) remembered {
	if claims <= 0 {
		return remembered{}
	}
	return remembered{freecache.NewCache(claims * claimBytes)}
}

func (r remembered) add(claim []byte) {
	if r.cache != nil {
		_ = r.cache.Set(claim, nil, 0) // Set refuses only entries that are larger than any claim
	}
}

func (r remembered) has(claim []byte) bool {
	if r.cache == nil {
		return false
	}
	_, err := r.cache.TTL(claim)
	return err == nil
}

func (r remembered) forget(claim []byte) {
	if r.cache != nil {
		r.cache.Del(claim)
	}
}

// handledBefore reports whether a claim that this process remembers is still in the database. After an error it reports
// false, and the transaction that follows finds out. It needs a connection, so the caller must not hold one.
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
