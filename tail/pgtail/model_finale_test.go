package pgtail_test

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// settle waits, if nothing is wrong, until all is published. Forwarders are idle for a moment then.
func (h *history) settle() {
	if len(h.alive) == 0 || !h.judge.calm() {
		return
	}
	h.say("let everything settle")
	h.until(func() bool { return len(h.judge.missing()) == 0 || !h.judge.calm() || len(h.alive) == 0 }, "all messages are published")
}

// finale lets all that is wrong end. One forwarder goes on, and everything that was committed must
// come.
func (h *history) finale() {
	h.say("FINALE")
	for len(h.open) > 0 {
		h.commit()
	}
	h.resume()
	h.heal()
	h.judge.releaseAll()
	for len(h.alive) > 0 {
		h.alive[0].stop()
		h.check()
	}
	start := h.position()
	h.serve(func() bool {
		return len(h.judge.missing()) == 0 && h.decided() && h.count("SELECT COUNT(*) FROM postbox_messages") == 0
	}, "all messages are published or dead")
	for _, m := range h.letters() {
		h.judge.accuse(m)
	}
	h.check()
	for id, m := range h.letters() {
		h.requeue(id, m, true)
	}
	last := h.writeOne(&modelKey{name: h.name + "-last", topic: topics[0]})
	h.serve(func() bool { return h.judge.done() && h.count("SELECT COUNT(*) FROM postbox_messages") == 0 }, "dead letters that were cured are published")
	require.Empty(h, h.letters())
	h.say("%s is published, and no log is needed", last.id)
	h.serve(func() bool {
		return h.count("SELECT COUNT(*) FROM pg_replication_slots WHERE slot_name = "+slotName+" AND confirmed_flush_lsn >= ?::pg_lsn", start) == 1
	}, "the position is confirmed")
	h.alive[0].stop()
	if len(h.dead) > 10 {
		h.forget()
	}
	h.check()
}

// serve runs a forwarder that reads the log until a condition holds. If a message kills it, the
// next one follows.
func (h *history) serve(condition func() bool, what string) {
	h.Helper()
	h.until(func() bool {
		if len(h.alive) == 0 {
			h.expire()
			h.until(h.slotIsFree, "the slot is free")
			h.spawn("tail")
		}
		return condition()
	}, what)
}

func (h *history) count(query string, args ...any) int {
	h.Helper()
	return h.Count(h.T, query, args...)
}

// position is the end of the log.
func (h *history) position() (end string) {
	require.NoError(h, h.DB.QueryRowContext(h.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&end))
	return end
}

func (h *history) slotIsFree() bool {
	return h.count("SELECT COUNT(*) FROM pg_replication_slots WHERE active AND slot_name = "+slotName) == 0
}

// decided says whether all messages that must become dead letters are.
func (h *history) decided() bool {
	letters := map[string]bool{}
	for _, m := range h.letters() {
		letters[m.id] = true
	}
	return h.judge.decided(letters)
}

// breathe lets forwarders work for a moment. The model is much faster than they are.
func (h *history) breathe() {
	before, wanted := h.judge.handled(), 1+h.draw(5, "calls")
	h.soon(func() bool { return h.judge.handled() >= before+wanted })
}

// soon gives a condition a moment to come, which makes some histories more likely.
func (h *history) soon(condition func() bool) {
	ctx, cancel := context.WithTimeout(h.Context(), 200*time.Millisecond)
	defer cancel()
	ticker := time.NewTicker(testdb.PollPause)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
