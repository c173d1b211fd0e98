package pgtail_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
)

var topics = []string{"orders", "invoices"}

// modelKey is a key with the producer that has it.
type modelKey struct {
	name, topic string
}

// transaction is one that is open, with what was written in it.
type transaction struct {
	*sql.Tx

	written []*posted
}

// key returns one of the keys.
func (h *history) key() *modelKey { return h.keys[h.draw(len(h.keys), "key")] }

// draft returns a message that is to be written.
func (h *history) draft(k *modelKey) *posted {
	h.messages++
	m := &posted{id: fmt.Sprintf("%s-%04d", k.name, h.messages), key: k.name, topic: k.topic}
	if h.rarely(10, "topic") {
		m.topic = topics[h.draw(2, "topic")]
	}
	switch {
	case h.rarely(12, "delayed"):
		m.delayed = true
	case h.rarely(12, "poison"):
		m.poison = true
	case h.rarely(40, "deadly"):
		m.deadly = true
	case h.rarely(20, "large"):
		m.large = true
	}
	return m
}

// post writes a message in a transaction.
func (h *history) post(ctx context.Context, tx *sql.Tx, m *posted) error {
	h.judge.write(m)
	msg := keyed(m.id, m.key)
	msg.Payload = []byte(m.id)
	if m.large { // more than the log brings of a row
		msg.Payload = []byte(m.id + strings.Repeat("x", 40<<10))
	}
	if m.delayed {
		delay.Message(msg, delay.For(50*time.Millisecond))
	}
	msg.SetContext(ctx)
	return h.rows.Bind(tx).Publish(m.topic, msg)
}

// write writes messages in a transaction, which commits, is rolled back, or stays open.
func (h *history) write() {
	tx := h.begin()
	if h.rarely(5, "savepoint") {
		h.onTx(tx, "SAVEPOINT s")
		m := h.draft(h.key())
		h.say("write %s, and roll it back", m)
		require.NoError(h, h.post(h.Context(), tx.Tx, m))
		h.onTx(tx, "ROLLBACK TO SAVEPOINT s")
	}
	for range 1 + h.draw(3, "messages") {
		m := h.draft(h.key())
		h.say("write %s", m)
		require.NoError(h, h.post(h.Context(), tx.Tx, m))
		tx.written = append(tx.written, m)
	}
	switch end := h.draw(8, "end"); {
	case end == 6:
		h.say("roll back")
		require.NoError(h, tx.Rollback())
	case end >= 4 && len(h.open) < 3:
		h.say("leave open")
		h.open = append(h.open, tx)
	default:
		h.end(tx)
	}
}

func (h *history) begin() *transaction {
	tx, err := h.DB.BeginTx(h.Context(), nil)
	require.NoError(h, err)
	return &transaction{Tx: tx}
}

func (h *history) onTx(tx *transaction, statement string) {
	_, err := tx.ExecContext(h.Context(), statement)
	require.NoError(h, err)
}

// end commits a transaction.
func (h *history) end(tx *transaction) {
	h.judge.commit(tx.written)
	h.say("commit %v", tx.written)
	require.NoError(h, tx.Commit())
}

// writeOne writes an ordinary message.
func (h *history) writeOne(k *modelKey) *posted {
	h.messages++
	m := &posted{id: fmt.Sprintf("%s-%04d", k.name, h.messages), key: k.name, topic: k.topic}
	tx := h.begin()
	require.NoError(h, h.post(h.Context(), tx.Tx, m))
	tx.written = []*posted{m}
	h.end(tx)
	return m
}

// commit commits one of the open transactions, not always the oldest.
func (h *history) commit() {
	if tx := h.takeOpen(); tx != nil {
		h.end(tx)
	}
}

func (h *history) rollBack() {
	if tx := h.takeOpen(); tx != nil {
		h.say("roll back %v", tx.written)
		require.NoError(h, tx.Rollback())
	}
}

func (h *history) takeOpen() *transaction {
	if len(h.open) == 0 {
		return nil
	}
	i := h.draw(len(h.open), "transaction")
	tx := h.open[i]
	h.open = slices.Delete(h.open, i, i+1)
	return tx
}

// burst lets the producers of several keys work at the same time.
func (h *history) burst() {
	var producers sync.WaitGroup
	failures := make([]error, len(h.keys))
	for i, k := range h.keys[:2+h.draw(len(h.keys)-1, "producers")] {
		var drafts [][]*posted
		for range 1 + h.draw(3, "transactions") {
			var some []*posted
			for range 1 + h.draw(2, "messages") {
				some = append(some, h.draft(k))
			}
			drafts = append(drafts, some)
		}
		h.say("write beside others %v", drafts)
		producers.Go(func() { failures[i] = h.writeAll(drafts) })
	}
	producers.Wait()
	for _, err := range failures {
		require.NoError(h, err)
	}
}

// writeAll writes messages in transactions, one after the other.
func (h *history) writeAll(drafts [][]*posted) error {
	for _, some := range drafts {
		tx, err := h.DB.BeginTx(h.Context(), nil)
		if err != nil {
			return err
		}
		for _, m := range some {
			if err := h.post(h.Context(), tx, m); err != nil {
				_ = tx.Rollback()
				return err
			}
		}
		h.judge.commit(some)
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// String is what a history says of the message.
func (m *posted) String() string {
	text := m.id
	for what, is := range map[string]bool{"delayed": m.delayed, "poison": m.poison, "deadly": m.deadly, "large": m.large} {
		if is {
			text += " " + what
		}
	}
	return text + " to " + m.topic
}
