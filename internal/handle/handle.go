package handle

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

const (
	// doubtful is how long after a connection has broken the others are asked whether they live, before they are used:
	// they may have broken at the same time, and database/sql tries a statement again three times only.
	doubtful = 30 * time.Second
	// answerTime is how long such a connection has to answer.
	answerTime = 5 * time.Second
)

// Of returns the handle of the engine on a pool, and a function that ends it. All handles on a pool share what is known
// of its connections. A handle has none of its own, but a goroutine.
func Of(pool *sql.DB, kind dialect.Kind) (db *sql.DB, end func()) {
	if pool == nil || kind.Can().OneWriter || dialect.PoolOf(pool) != pool {
		return pool, func() {}
	}
	db = sql.OpenDB(&connector{pool: pool, kind: kind, shared: sharedOf(pool)})
	db.SetMaxIdleConns(-1) // each goes back to the pool of the user at once
	return db, func() { _ = db.Close() }
}

// shared is what all handles on a pool know of its connections.
type shared struct {
	broke atomic.Int64 // when a connection has broken, in nanoseconds since 1970

	mu       sync.Mutex
	prepared map[driver.Conn]*prepared
}

// known holds the shared state of each pool that is in use. It does not keep a pool alive.
var known sync.Map

func sharedOf(pool *sql.DB) *shared {
	key := weak.Make(pool)
	state, found := known.LoadOrStore(key, &shared{prepared: map[driver.Conn]*prepared{}})
	if !found {
		runtime.AddCleanup(pool, func(key weak.Pointer[sql.DB]) { known.Delete(key) }, key)
	}
	return state.(*shared) //nolint:forcetypeassert // nothing else is stored
}

// connector borrows connections.
type connector struct {
	pool   *sql.DB
	kind   dialect.Kind
	shared *shared
}

// Driver returns the driver of the pool, in a form from which [dialect.PoolOf] knows the pool.
func (c *connector) Driver() driver.Driver { return borrower{c.pool} }

type borrower struct{ pool *sql.DB }

// Pool returns the pool of the user.
func (b borrower) Pool() *sql.DB { return b.pool }

// Open is not called: the handle has a connector.
func (borrower) Open(string) (driver.Conn, error) { return nil, errors.ErrUnsupported }

// Connect borrows a connection. While others break, it looks for one that answers.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	for {
		lease, err := c.pool.Conn(ctx)
		if err != nil {
			return nil, err
		}
		b := &borrowed{lease: lease, of: c}
		err = lease.Raw(func(conn any) error {
			b.Conn, _ = conn.(driver.Conn)
			return nil
		})
		if err != nil {
			_ = lease.Close()
			return nil, err
		}
		b.socket = dialect.DeafSocket(b.Conn)
		if time.Since(time.Unix(0, c.shared.broke.Load())) > doubtful || b.answers(ctx) {
			return b, nil
		}
		_ = b.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// answers reports whether the connection lives. One that does not answer is discarded.
func (b *borrowed) answers(ctx context.Context) bool {
	pinger, is := b.Conn.(driver.Pinger)
	if !is {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	defer b.watch(ctx)()
	if err := pinger.Ping(ctx); err != nil {
		b.unfit.Store(true)
		return false
	}
	return true
}
