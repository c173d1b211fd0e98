package drain_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// process is a drainer on a database handle of its own, which can be killed: what its handlers do
// from then on reaches nobody, and what it holds is handed back by nobody.
type process struct {
	*running

	b    *bench
	name string
	db   *sql.DB
	dead chan struct{}
	once sync.Once
}

// spawn starts a process. It renews nothing by itself, so a lease that a test has ended stays so.
// After a lease that ends by itself it does nothing more, so a lease is long enough for a busy
// machine, and still ends before a test gives up: a renewal that was under way may come after
// [process.kill] has ended the leases. An end of the test ends it at once, whatever its handlers
// do.
func (b *bench) spawn(name string, handler func(p *process) drain.Handler, change func(c *drain.Config)) *process {
	b.T.Helper()
	p := &process{b: b, name: name, db: b.Database.Open(b.T), dead: make(chan struct{})}
	c := config(name)
	c.Lease, c.Renew, c.Close = patience/3, time.Hour, 100*time.Millisecond
	if change != nil {
		change(&c)
	}
	p.running = b.start(p.db, handler(p), c)
	return p
}

// dies makes the process silent. Its handlers that run stand still.
func (p *process) dies() { p.once.Do(func() { close(p.dead) }) }

// afterDeath stands still until the test ends if the process is dead.
func (p *process) afterDeath(ctx context.Context) error {
	select {
	case <-p.dead:
		<-ctx.Done()
		return ctx.Err()
	default:
		return nil
	}
}

// kill takes the database away from a process and lets its leases run out.
func (p *process) kill() {
	p.b.T.Helper()
	p.dies()
	require.NoError(p.b.T, p.db.Close())
	p.expire()
}

// expire ends the leases of a process, as time does when it is too slow to renew them.
func (p *process) expire() {
	p.b.T.Helper()
	p.b.Database.Exec(p.b.T, "UPDATE postbox_members SET expires_at = 0 WHERE holder = ?", p.name)
	p.b.Database.Exec(p.b.T, "DELETE FROM postbox_members WHERE holder = ?", p.name)
}

// effector is a handler whose effect is a row, which is committed together with the end of the
// message.
type effector struct {
	recorder

	p *process
	// do, if set, is the handler's work.
	do func(ctx context.Context, m *spool.Message) error
	// inTx, if set, runs in the transaction, before the message is settled.
	inTx func(m *spool.Message) error
}

// effects makes the table for them. Nothing keeps a message from having two, but the engine.
func (b *bench) effects() {
	b.Database.Exec(b.T, "CREATE TABLE effects (message_id VARCHAR(40) NOT NULL)")
}

// effect counts the rows of a message, of all for "".
func (b *bench) effect(id string) int {
	b.T.Helper()
	if id == "" {
		return b.Database.Count(b.T, "SELECT COUNT(*) FROM effects")
	}
	return b.Database.Count(b.T, "SELECT COUNT(*) FROM effects WHERE message_id = ?", id)
}

// effectsOnce says that so many messages have had their effect, each once.
func (b *bench) effectsOnce(messages int) {
	b.T.Helper()
	require.Equal(b.T, messages, b.effect(""))
	require.Equal(b.T, messages, b.Database.Count(b.T, "SELECT COUNT(DISTINCT message_id) FROM effects"))
}

func (e *effector) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	outcomes := make([]spool.Outcome, len(batch))
	failed := map[string]bool{}
	for i, m := range batch {
		if m.HasKey && failed[m.Key] {
			outcomes[i] = spool.Outcome{Verdict: spool.Postpone}
			continue
		}
		outcomes[i] = e.one(ctx, m)
		failed[m.Key] = outcomes[i].Verdict != spool.Settled
	}
	return outcomes
}

func (e *effector) one(ctx context.Context, m *spool.Message) spool.Outcome {
	if err := e.work(ctx, m); err != nil {
		return drain.OutcomeOf(err)
	}
	err := spool.InTx(ctx, e.p.db, e.p.b.Statements, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, e.p.b.Database.Bind("INSERT INTO effects (message_id) VALUES (?)"), m.MessageID); err != nil {
			return err
		}
		if e.inTx != nil {
			if err := e.inTx(m); err != nil {
				return err
			}
		}
		return spool.Settle(ctx, tx, spool.Directly, []*spool.Message{m})
	})
	switch {
	case err == nil:
		return spool.Outcome{Verdict: spool.Settled}
	case errors.Is(err, errTest):
		return spool.Outcome{Verdict: spool.Retry, Err: err}
	case errors.Is(err, spool.ErrLost), e.p.b.Statements.Kind.Classify(err) == dialect.Conflict:
		return spool.Outcome{Verdict: spool.Again, Err: err}
	default: // the database's fault, or nobody's
		return spool.Outcome{Verdict: spool.Postpone, Err: err}
	}
}

// work counts an attempt, and ends only with the test once the process is dead. A dead process
// begins no attempt, although it still has messages in memory.
func (e *effector) work(ctx context.Context, m *spool.Message) error {
	if err := e.p.afterDeath(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	if e.attempts == nil {
		e.attempts = map[string]int{}
	}
	e.attempts[m.MessageID]++
	e.mu.Unlock()
	var err error
	if e.do != nil {
		err = e.do(ctx, m)
	}
	return cmp.Or(e.p.afterDeath(ctx), err)
}

// never watches for a while that something does not happen. It asks itself, and has asked when it
// returns.
func (b *bench) never(condition func() bool, span time.Duration, what string) {
	b.T.Helper()
	end := time.NewTimer(span)
	defer end.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		require.False(b.T, condition(), what)
		select {
		case <-end.C:
			return
		case <-tick.C:
		}
	}
}

// signal waits for a channel that is closed, or gets a value.
func signal[T any](t *testing.T, c <-chan T, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		require.FailNow(t, what)
	}
}
