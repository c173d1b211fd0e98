package drain_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// writing are processes that write messages, whose ids are "key/number". A key has one writer at a time, so the numbers say in which order its messages were
// written.
type writing struct {
	b       *bench
	keys    []sync.Mutex
	written []int // messages of each key
}

// write stores a message of each of some keys, which are in order, in one transaction, and keeps it open for a while.
func (w *writing) write(into *spool.Spool, keys []int, open time.Duration) error {
	for _, k := range keys {
		w.keys[k].Lock()
		defer w.keys[k].Unlock()
	}
	err := spool.InTx(w.b.T.Context(), w.b.Database.DB, w.b.Statements, func(tx *sql.Tx) error {
		for _, k := range keys {
			key := fmt.Sprint("k", k)
			if err := into.Append(w.b.T.Context(), tx, spool.Run, []spool.Draft{draft(fmt.Sprintf("%s/%05d", key, w.written[k]), key)}); err != nil {
				return err
			}
		}
		<-time.After(open)
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		w.written[k]++
	}
	return nil
}

// run writes until it shall end. A producer that is stale keeps the number of lanes that it read first.
func (w *writing) run(seed uint64, stale bool, open time.Duration, end <-chan struct{}) error {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
	into := spool.New(w.b.Statements, w.b.Spool.Name(), lanes)
	for {
		if !stale {
			into = spool.New(w.b.Statements, w.b.Spool.Name(), lanes)
		}
		keys := random.Perm(len(w.keys))[:1+random.IntN(3)]
		slices.Sort(keys)
		if err := w.write(into, keys, open); err != nil {
			return err
		}
		select {
		case <-end:
			return nil
		case <-time.After(3 * time.Millisecond):
		}
	}
}

// attempts are those of all processes, in the order in which they began.
type attempts struct {
	mu     sync.Mutex
	ids    []string
	random *rand.Rand
}

// handler has one effect for each message, and fails now and then before it.
func (a *attempts) handler(p *process) drain.Handler {
	return &effector{p: p, do: func(_ context.Context, m *spool.Message) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ids = append(a.ids, m.MessageID)
		if a.random.IntN(10) == 0 {
			return errTest
		}
		return nil
	}}
}

// inOrder requires that no message of a key was tried before the last attempt of an earlier one began.
func (a *attempts) inOrder(t *testing.T) {
	t.Helper()
	byKey := map[string][]string{}
	for _, id := range a.ids {
		key, _, _ := strings.Cut(id, "/")
		byKey[key] = append(byKey[key], id)
	}
	for key, of := range byKey {
		require.True(t, slices.IsSorted(of), "key %s: %v", key, of)
	}
}

// Three producers, of which one is stale and one keeps its transactions open, and three processes that handle messages, one of which crashes. Also covers G2,
// G4, G6.
func TestLanes_G3_change_at_random_while_handlers_fail_and_a_process_crashes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.effects()
		b.Append(database.DB, draft("k0/00000", "k0"))
		w := &writing{b: b, keys: make([]sync.Mutex, 12), written: append([]int{1}, make([]int, 11)...)}
		seed := rand.Uint64() //nolint:gosec // a test
		t.Log("seed", seed)
		random := rand.New(rand.NewPCG(seed, 1))               //nolint:gosec // a test
		a := &attempts{random: rand.New(rand.NewPCG(seed, 2))} //nolint:gosec // a test
		spawn := func(name string) *process {
			p := b.spawn(name, a.handler, func(c *drain.Config) {
				c.Lease, c.Renew, c.Retry.Attempts = config("").Lease, config("").Renew, postbox.Unlimited
			})
			signal(t, p.Ready(), "it is there")
			return p
		}
		processes := []*process{spawn("one"), spawn("two"), spawn("three")}

		end, ended := make(chan struct{}), make(chan error, 3)
		open := 20 * time.Millisecond
		if b.Statements.Kind.Can().OneWriter {
			open = 0
		}
		for i := range uint64(3) {
			go func() { ended <- w.run(seed+i, i == 0, time.Duration(i/2)*open, end) }() //nolint:gosec // a small number
		}
		for i := range 6 {
			n := []int{1, 8, 3, 16}[random.IntN(4)]
			_, err := b.setLanes(t.Context(), n)
			require.NoError(t, err)
			if i == 3 {
				processes[random.IntN(3)].kill()
				spawn("four")
			}
		}
		close(end)
		for range 3 {
			require.NoError(t, <-ended)
		}
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are handled")
		written := 0
		for _, n := range w.written {
			written += n
		}
		b.effectsOnce(written)
		a.inOrder(t)
	})
}
