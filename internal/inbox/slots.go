package inbox

import (
	"context"
	"database/sql"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// Slots limit the number of handlers that hold a transaction of a pool, across all stores of that
// pool, so that one connection remains for leases, reads and records. A process that cannot renew
// its leases loses its lanes even though it is alive. A pool with one connection has none to
// reserve. There the transaction of a handler holds its lane, see [spool.Hold].
type Slots struct {
	db *sql.DB
	*queueForSlots
}

// queueForSlots is the state that the stores of a pool share.
type queueForSlots struct {
	mu      sync.Mutex
	taken   int
	waiting []chan struct{} // first come, first served
}

// pools holds the queueForSlots of each pool that is in use. It does not keep a pool alive.
var pools sync.Map

func slotsOf(db *sql.DB) Slots {
	pool := weak.Make(db)
	shared, known := pools.LoadOrStore(pool, &queueForSlots{})
	if !known {
		runtime.AddCleanup(db, func(pool weak.Pointer[sql.DB]) { pools.Delete(pool) }, pool)
	}
	return Slots{db: db, queueForSlots: shared.(*queueForSlots)}
}

// most returns the number of slots; 0 means no limit. It is computed each time, since the size of
// the pool may change at any time.
func (s *Slots) most() int {
	connections := s.db.Stats().MaxOpenConnections
	if connections == 0 || s.Alone() {
		return connections
	}
	return connections - 1
}

// Alone reports whether a handler with a transaction holds the only connection.
func (s *Slots) Alone() bool { return s.db.Stats().MaxOpenConnections == 1 }

// Take waits for a slot while ctx lives, and returns a function that frees it.
func (s *Slots) Take(ctx context.Context) (giveBack func(), err error) {
	s.mu.Lock()
	if most := s.most(); most == 0 || s.taken < most {
		s.taken++
		s.mu.Unlock()
		return s.giveBack, nil
	}
	granted := make(chan struct{}, 1)
	s.waiting = append(s.waiting, granted)
	s.mu.Unlock()
	select {
	case <-granted:
		return s.giveBack, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, granted); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	} else { // the slot was granted meanwhile
		s.free()
	}
	return nil, ctx.Err()
}

func (s *Slots) giveBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free()
}

// free frees a slot, and grants as many slots to waiting callers as there are by now.
func (s *Slots) free() {
	s.taken--
	for most := s.most(); len(s.waiting) > 0 && (most == 0 || s.taken < most); s.taken++ {
		s.waiting[0] <- struct{}{}
		s.waiting = s.waiting[1:]
	}
}
