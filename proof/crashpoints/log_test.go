//go:build !race

// With the race detector, the crash points run on SQLite alone, which has no log that can be read.

package crashpoints_test

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// logServer is the server whose log can be read. Its calls are those of PostgreSQL.
var logServer = database{"postgres", testdb.PostgresLog}

// marker is the topic of messages that show that all earlier ones of the log were read.
const marker = "marker"

// logged are the transactions of the flow, each with messages that are in the log alone.
var logged = []struct {
	effect   string
	messages []*message.Message
}{
	{"first", []*message.Message{newMessage("a1", "a"), newMessage("n1", "")}},
	{"second", []*message.Message{newMessage(flaky, "a"), newMessage("a3", "a")}},
}

// forwardLog runs a forwarder of messages in the log. Once it reads the log, write writes some, and it goes on until all are done.
func (p *process) forwardLog(ctx context.Context, write func(ctx context.Context) error) error {
	reader, err := pgtail.NewOutbox(pgtail.OutboxConfig{DSN: p.w.database.DSN})
	if err != nil {
		return err
	}
	if err := p.w.slotIsFree(ctx); err != nil {
		return err
	}
	reading := make(chan struct{})
	begun := sync.OnceFunc(func() { close(reading) })
	measured := p.w.database.On(p.db)
	measured.Metrics = metrics.RecorderFunc(func(i *metrics.Instrument, value float64, _ ...string) {
		if i == metrics.LogReading && value > 0 {
			begun()
		}
	})
	f, err := p.forwarder(measured, forwarder.Config{Tail: reader})
	if err != nil {
		return err
	}
	last, before := "", ""
	return p.until(ctx, f.Run, func(ctx context.Context) (bool, error) {
		select {
		case <-reading:
		default:
			return false, nil
		}
		if last == "" {
			if err := write(ctx); err != nil {
				return false, ignoreEnd(ctx, err)
			}
			last = watermill.NewULID()
			before, err = p.w.mark(ctx, last)
			return false, ignoreEnd(ctx, err)
		}
		if !p.w.has(sent{marker, last, ""}) {
			return false, nil
		}
		read, err := p.w.isRead(ctx, before)
		if !read || err != nil {
			return false, ignoreEnd(ctx, err)
		}
		return p.w.drained(outboxName)(ctx)
	})
}

// slotIsFree waits until the server knows that the last reader is gone. The next one would look again a second later only.
func (w *world) slotIsFree(ctx context.Context) error {
	look := time.NewTicker(lookPause)
	defer look.Stop()
	for {
		var taken bool
		if err := w.database.DB.QueryRowContext(ctx, slotIsTaken).Scan(&taken); err != nil || !taken {
			return ignoreEnd(ctx, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
}

// mark writes a marker into the log, and returns a place before it.
func (w *world) mark(ctx context.Context, id string) (before string, err error) {
	if err := w.database.DB.QueryRowContext(ctx, endOfLog).Scan(&before); err != nil {
		return "", err
	}
	unharmed, err := w.emitter(w.database.DB)
	if err != nil {
		return "", err
	}
	return before, unharmed.Publish(marker, newMessage(id, ""))
}

// isRead says whether all messages up to a place in the log are published or have rows. Only messages move the position.
func (w *world) isRead(ctx context.Context, before string) (read bool, err error) {
	err = w.database.DB.QueryRowContext(ctx, w.database.Bind(isRead), before).Scan(&read)
	return read, err
}

func (w *world) emitter(db *sql.DB) (*forwarder.Publisher, error) {
	return forwarder.NewPublisher(w.database.On(db), forwarder.PublisherConfig{Lanes: lanes, Log: true, AllowAutocommit: true}, nil)
}

// has says whether the broker got a message.
func (w *world) has(s sent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.published, s)
}

// writeLogged writes the messages of the flow.
func (p *process) writeLogged(ctx context.Context) error {
	outbox, err := p.w.emitter(p.db)
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	for _, each := range logged {
		p.hears(each.effect, forwarder.InTx(ctx, p.db, func(ctx context.Context, _ *sql.Tx) error {
			if err := p.effect(ctx, each.effect); err != nil {
				return err
			}
			for _, msg := range each.messages {
				msg := msg.Copy()
				msg.SetContext(ctx)
				if err := outbox.Publish("orders", msg); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	return nil
}

// checkLogged wants each committed message, and no other: this flow does not write again what a crash has rolled back.
func checkLogged(c *check) {
	done := list(c.T, c.w.database, selectEffects)
	var want []string
	for _, each := range logged {
		committed := slices.Contains(done, each.effect)
		c.told(each.effect, committed)
		c.require().True(committed || c.struck)
		for _, msg := range each.messages {
			if committed {
				want = append(want, msg.UUID)
			}
		}
	}
	c.published("orders", want...)
	c.pending(outboxName)
	c.dead()
}

// Messages that are in the log alone are published without a row, or get one.
// Also covers G1, G3, F1, F5 and F26.
func TestCrash_G2_while_forwarding_messages_of_the_log(t *testing.T) {
	t.Parallel()
	on(t, logServer, flow{
		name: "forward messages of the log", least: 20, setUp: setUpLog, check: checkLogged,
		life: func(ctx context.Context, p *process) error { return p.forwardLog(ctx, p.writeLogged) },
		after: func(ctx context.Context, p *process) error {
			return p.forwardLog(ctx, func(context.Context) error { return nil })
		},
	})
}

// setUpLog makes the slot. At the end it is dropped, since the server would keep its log for it.
func setUpLog(t *testing.T, database *testdb.Database) {
	t.Helper()
	require.NoError(t, pgtail.SetupOutbox(t.Context(), database.Postbox(), pgtail.OutboxConfig{DSN: database.DSN}))
	t.Cleanup(func() {
		require.Eventually(t, func() bool {
			_, err := database.DB.ExecContext(context.Background(), dropSlot)
			return err == nil
		}, patience, testdb.PollPause, "the slot is dropped once the server knows that its last reader is gone")
	})
}
