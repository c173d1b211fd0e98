package inboxstore

import "github.com/coocood/freecache"

// remembered are the claims of which this process knows that they were committed, the latest of them, so that a prompt
// duplicate costs no transaction. It keeps whole claims, so it takes no message for another one; that it forgot one costs a
// look into the database. There are no pointers in the cache, since the garbage collector would follow those of all its entries
// every few thousand messages. The zero value remembers nothing.
type remembered struct{ cache *freecache.Cache }

// claimBytes is what the cache needs for a claim whose message id is a UUID or a ULID.
const claimBytes = 64

// remember returns room for about so many claims, or none.
func remember(claims int) remembered {
	if claims <= 0 {
		return remembered{}
	}
	return remembered{freecache.NewCache(claims * claimBytes)}
}

func (r remembered) add(claim []byte) {
	if r.cache != nil {
		_ = r.cache.Set(claim, nil, 0) // refuses only what is larger than any claim
	}
}

func (r remembered) has(claim []byte) bool {
	if r.cache == nil {
		return false
	}
	_, err := r.cache.TTL(claim)
	return err == nil
}
