package command_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// onCall is somebody who begins with "postbox doctor" and knows nothing. The tests of this file
// count the commands, see docs/dev/operators.md.
type onCall struct {
	*bench

	commands int
	said     string // by the last command
}

func newOnCall(t *testing.T) *onCall {
	t.Helper()
	return &onCall{bench: newBench(t, testdb.SQLite(t))}
}

// types runs a command as it is typed.
func (o *onCall) types(line string) {
	o.Helper()
	o.commands++
	r := o.run(strings.Fields(line)...)
	o.said = r.out + r.err
}

// reads requires that the last command has said these texts.
func (o *onCall) reads(texts ...string) {
	o.Helper()
	for _, text := range texts {
		require.Contains(o, o.said, text)
	}
}

// over ends the incident.
func (o *onCall) over(most int) {
	o.Helper()
	o.Logf("%d commands, of at most %d", o.commands, most)
	require.LessOrEqual(o, o.commands, most)
}

// relay runs a process that publishes what is in the outbox until the test ends.
func (o *onCall) relay(publish func(topic, id string) error) {
	o.Helper()
	each := publisherFunc(func(topic string, messages ...*message.Message) error {
		for _, msg := range messages {
			if err := publish(topic, msg.UUID); err != nil {
				return err
			}
		}
		return nil
	})
	f, err := forwarder.New(o.database.Postbox(), each, forwarder.Config{Tuning: postbox.Tuning{Lease: time.Second}}, nil)
	require.NoError(o, err)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(context.WithoutCancel(o.Context())) }()
	o.Cleanup(func() {
		require.NoError(o, f.Close())
		require.NoError(o, <-ended)
	})
}

// counts waits until a statement counts so many rows.
func (o *onCall) counts(n int, statement string) {
	o.Helper()
	require.Eventually(o, func() bool { return o.database.Count(o, statement) == n }, time.Minute, 10*time.Millisecond, statement)
}

const (
	pending = "SELECT COUNT(*) FROM postbox_messages"
	failed  = "SELECT COUNT(*) FROM postbox_messages WHERE state = 2"
)

// A message that cannot be handled holds up 10,000 others of its key. It is corrected, too.
func TestIncident_a_poisoned_key(t *testing.T) {
	t.Parallel()
	o := newOnCall(t)
	const behind = 10_000
	all := []spool.Draft{draft("poison", "orders", "customer-12")}
	for i := range behind {
		all = append(all, draft(fmt.Sprintf("m-%d", i), "orders", "customer-12"))
	}
	o.append(o.outbox, all...)
	var corrected, published atomic.Int64
	o.relay(func(_, id string) error {
		if id == "poison" && corrected.Load() == 0 {
			return postbox.RetryAfter(errors.New("the amount -1 is refused"), time.Hour)
		}
		published.Add(1)
		return nil
	})
	o.counts(1, failed)

	o.types("doctor")
	o.reads(`outbox "outbox" has 1 stuck key, the first for `, "if it never can, bury it. See: postbox keys stuck --outbox outbox")
	o.types("keys stuck --outbox outbox")
	o.reads("customer-12", "the amount -1 is refused", fmt.Sprint(behind))
	o.types("messages bury 1 --outbox outbox --reason negative --yes")
	o.counts(0, pending)
	require.Equal(t, int64(behind), published.Load())

	file := filepath.Join(t.TempDir(), "fixed.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"cents":1}`), 0o600))
	o.types("dead list")
	o.reads("orders", "negative")
	corrected.Store(1)
	o.types("dead edit 1 --payload-file " + file + " --allow-edit --yes")
	require.Eventually(t, func() bool { return published.Load() == behind+1 }, time.Minute, 10*time.Millisecond)
	o.over(5)
}

// One cause, and forty topics that suffer from it.
func TestIncident_b_broker_away(t *testing.T) {
	t.Parallel()
	o := newOnCall(t)
	for i := range 40 {
		topic := fmt.Sprintf("topic-%02d", i)
		o.append(o.outbox, draft(topic, topic, topic))
	}
	var back atomic.Bool
	o.relay(func(string, string) error {
		if back.Load() {
			return nil
		}
		return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	})
	// All topics have been tried, and the heartbeats and the errors are stored.
	require.Eventually(t, func() bool {
		said := o.run("doctor").out
		return strings.Contains(said, "for 40 topics") && strings.Contains(said, "connection refused")
	}, time.Minute, 10*time.Millisecond)
	o.types("doctor")
	o.reads(`outbox "outbox" cannot reach the broker for 40 topics since `, "40 messages wait: none is lost.", "Z: publish to topic", "dial tcp: connection refused", "It is tried again by itself")
	require.Equal(t, 1, strings.Count(o.said, `outbox "outbox"`), "no second symptom of it")
	back.Store(true)
	o.counts(0, pending)
	o.over(1)
}

// Messages for which no process runs.
func TestIncident_c_nobody_handles(t *testing.T) {
	t.Parallel()
	o := newOnCall(t)
	o.append(o.queue, draft("m-1", "orders", ""), draft("m-2", "orders", ""), draft("m-3", "orders", ""))
	o.types("doctor")
	o.reads(`queue "fraud" has 3 messages and no process that handles them.`,
		"Run a queue.Subscriber or a queue.Batch of this queue, or correct the name where messages are deferred. See: postbox lanes --members --queue fraud")
	o.over(1)
}

// 200 dead letters of a broken service, which are to be handled again, and 100 that never will be.
func TestIncident_d_two_kinds_of_errors(t *testing.T) {
	t.Parallel()
	o := newOnCall(t)
	var all []spool.Draft
	for i := range 300 {
		all = append(all, draft(fmt.Sprintf("m-%d", i), "orders", ""))
	}
	o.append(o.outbox, all...)
	var repaired atomic.Bool
	o.relay(func(_, id string) error {
		switch {
		case repaired.Load():
			return nil
		case strings.HasSuffix(id, "0") || strings.HasSuffix(id, "3") || strings.HasSuffix(id, "6"):
			return postbox.Permanent(errors.New("bank: HTTP 404 no such account"))
		default:
			return postbox.Permanent(errors.New("bank: HTTP 503 Service Unavailable"))
		}
	})
	o.counts(300, "SELECT COUNT(*) FROM postbox_dead_letters")
	o.types("doctor")
	o.reads(`outbox "outbox" has 300 dead letters`, "requeue, resolve or delete it. See: postbox dead groups --outbox outbox")
	o.types("dead groups --outbox outbox")
	o.reads("HTTP 503", "HTTP 404", "210", "90")
	repaired.Store(true)
	example := func(of string) string { // that the table shows, too
		for line := range strings.Lines(o.ok("dead", "groups", "-o", "jsonl")) {
			if _, id, _ := strings.Cut(line, `"example":`); strings.Contains(line, of) {
				return strings.TrimRight(strings.Split(id, ",")[0], "}\n")
			}
		}
		return ""
	}
	again, never := example("HTTP 503"), example("HTTP 404")
	o.reads(again, never)
	o.types("dead requeue --like " + again + " --yes")
	o.reads("210 dead letters requeued")
	o.types("dead resolve --like " + never + " --reason closed --yes")
	o.reads("90 dead letters resolved")
	o.counts(0, pending)
	o.over(5)
}

// What became of a message of which only the id is known.
func TestIncident_e_what_became_of_it(t *testing.T) {
	t.Parallel()
	o := newOnCall(t)
	o.outboxID()
	o.ok("set", "--outbox", "outbox", "--history", "1h", "--yes")
	o.append(o.outbox, draft("X", "orders", "customer-99"), draft("Y", "orders", ""))
	o.relay(func(string, string) error { return nil })
	o.counts(2, "SELECT COUNT(*) FROM postbox_history")
	o.types("find X")
	o.reads(`written to the outbox "outbox"`, "published by attempt 1, ")
	require.NotContains(t, o.said, "message 2")
	o.over(2)
}

// The broker is to be replaced: nothing is published until an hour that is known before.
func TestIncident_f_pause_for_maintenance(t *testing.T) {
	t.Parallel()
	o := newOnCall(t)
	o.outboxID()
	var published atomic.Int64
	o.relay(func(string, string) error { published.Add(1); return nil })
	o.types("doctor")
	o.types("pause --outbox outbox --until +2h --reason broker")
	o.reads("Processes notice within a second")
	o.over(3)

	require.Contains(t, o.run("doctor").out, `outbox "outbox" has been paused since `)
	// The pause ends at its hour, without a command.
	o.database.Exec(t, "UPDATE postbox_spools SET pause_ends_at = 1")
	o.append(o.outbox, draft("m-1", "orders", ""))
	o.counts(0, pending)
	require.Equal(t, int64(1), published.Load())
}
