package sources

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	wmforwarder "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Also covers G2 and G10.
func TestTransfer_G3_several_processes_take_over_while_producers_write(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		const producers, each = 4, 60
		w.source.PageSize = 7
		w.initialize()
		for range 3 {
			db := w.database.Open(w.t)
			db.SetMaxOpenConns(1)
			w.start(w.transfer(db, nil))
		}
		var writing sync.WaitGroup
		written := make([][]string, producers)
		for p := range producers {
			writing.Go(func() {
				for i := range each {
					batch := ids(fmt.Sprintf("p%d-", p), i*3, i*3+1+i%3)
					tx, err := w.database.DB.BeginTx(w.t.Context(), nil)
					if err != nil {
						w.t.Errorf("begin: %s", err)
						return
					}
					if err := w.publisher(tx).Publish(w.source.Topic, oldMessages(batch...)...); err != nil {
						w.t.Errorf("publish: %s", err)
					}
					if i%7 == 6 {
						_ = tx.Rollback()
						continue
					}
					if err := tx.Commit(); err != nil {
						w.t.Errorf("commit: %s", err)
						return
					}
					written[p] = append(written[p], batch...)
				}
			})
		}
		writing.Wait()
		w.eventually(func() bool { return w.left() == 0 }, "everything is taken over")
		came := w.movedIDs()
		for p := range producers {
			prefix := fmt.Sprintf("p%d-", p)
			own := slices.DeleteFunc(slices.Clone(came), func(id string) bool { return !strings.HasPrefix(id, prefix) })
			require.Equal(w.t, written[p], own, "each message once, in the order in which it was committed")
		}
	})
}

// Also covers F4.
func TestTransfer_G3_takes_a_row_that_commits_late(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.source.PageSize = 4
		w.initialize()
		transfer, other := w.transfer(w.database.DB, nil), w.transfer(w.database.Open(w.t), nil)
		w.publish(w.database.DB, "first")
		require.Equal(w.t, 1, w.step(transfer))

		late, later := w.begin(w.database.DB), w.begin(w.database.DB)
		w.publish(late, ids("late", 0, 6)...)
		w.publish(w.database.DB, "a", "b")
		w.publish(later, "later")
		w.publish(w.database.DB, "c")
		require.Equal(w.t, 3, w.step(transfer), "an open transaction delays nobody")
		w.publish(w.database.DB, ids("d", 0, 10)...)
		require.Equal(w.t, 4, w.step(other))
		require.Equal(w.t, 4, w.step(transfer))
		require.Equal(w.t, 2, w.step(other))
		require.Zero(w.t, w.step(transfer))
		require.Zero(w.t, w.left()) // that is visible

		require.NoError(w.t, late.Commit())
		w.publish(w.database.DB, "after")
		require.Equal(w.t, 4, w.step(transfer))
		require.NoError(w.t, later.Commit())
		fresh := w.transfer(w.database.Open(w.t), nil)
		require.Equal(w.t, 4, w.step(fresh))
		require.Zero(w.t, w.step(transfer)+w.step(other)+w.step(fresh))
		require.Equal(w.t, slices.Concat([]string{"first", "a", "b", "c"}, ids("d", 0, 10), ids("late", 0, 6), []string{"later", "after"}), w.movedIDs())
		require.Zero(w.t, w.left())
	})
}

// L4, L5: watermill-sql delivers nothing while any transaction of the cluster that writes is open.
func TestTransfer_G3_unrelated_transaction_delays_nothing(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.initialize()
		w.database.Exec(w.t, "CREATE TABLE unrelated (n INT)")
		unrelated := w.begin(w.database.DB)
		_, err := unrelated.ExecContext(w.t.Context(), "INSERT INTO unrelated VALUES (1)")
		require.NoError(w.t, err)
		transfer := w.transfer(w.database.DB, nil)
		for i := range 5 {
			w.publish(w.database.DB, ids("m", i, i+1)...)
			require.Equal(w.t, 1, w.step(transfer))
		}
	})
}

// Also covers G9.
func TestTransfer_F12_a_row_that_is_no_message_becomes_a_dead_letter(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.source.Envelope = true
		w.initialize()
		enveloping := wmforwarder.NewPublisher(w.publisher(w.database.DB), wmforwarder.PublisherConfig{ForwarderTopic: w.source.Topic})
		require.NoError(w.t, enveloping.Publish("orders", oldMessages("good-1")...))
		w.publish(w.database.DB, "foreign")
		w.database.Exec(w.t, w.insertRaw(), "raw", []byte{0xff, 0x00}, `{"n":1}`)
		w.database.Exec(w.t, w.insertRaw(), "null", nil, nil)
		require.NoError(w.t, enveloping.Publish("orders", oldMessages("good-2")...))

		logger := watermill.NewCaptureLogger()
		require.Equal(w.t, 2, w.step(w.transfer(w.database.DB, logger)))
		require.Equal(w.t, []string{"good-1", "good-2"}, w.movedIDs())
		require.Equal(w.t, "orders", w.moved()[0].topic)
		require.JSONEq(w.t, `{"id": "good-1"}`, w.moved()[0].payload)
		require.Zero(w.t, w.left())
		require.Len(w.t, w.errors(logger), 3)

		letters, err := admin.New(w.database.Postbox(), admin.Config{Outbox: "test"}, watermill.NopLogger{})
		require.NoError(w.t, err)
		list, _, err := letters.DeadLetters(w.t.Context(), admin.Filter{Limit: 10})
		require.NoError(w.t, err)
		require.Len(w.t, list, 3)
		require.Equal(w.t, "foreign", list[0].MessageID)
		require.Equal(w.t, w.source.Topic, list[0].Topic)
		require.Contains(w.t, list[0].Error, "names no destination topic")
		raw, err := letters.DeadLetter(w.t.Context(), list[1].ID)
		require.NoError(w.t, err)
		require.Equal(w.t, []byte{0xff, 0x00}, []byte(raw.Payload))
		require.JSONEq(w.t, `{"n":1}`, raw.Metadata[sourceMetadata])

		require.NoError(w.t, errorOf(letters.Requeue(w.t.Context(), admin.Filter{ID: list[0].ID}, admin.Again{})))
		requeued := w.moved()[2]
		require.Equal(w.t, w.source.Topic, requeued.topic)
		require.JSONEq(w.t, `{"id": "foreign"}`, requeued.payload)
		require.Equal(w.t, map[string]string{"id": "foreign"}, requeued.metadata)
		require.Equal(w.t, 2, w.dead())
	})
}

// The database does not store the dead letter, and reports no error. Then the row stays where it
// is.
func TestTransfer_G2_a_row_whose_dead_letter_is_not_stored_stays(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		if w.database.Dialect == postbox.MySQL {
			return // a trigger there can only raise an error
		}
		w.source.Envelope = true
		w.initialize()
		w.publish(w.database.DB, "foreign")
		w.database.Exec(w.t, "CREATE FUNCTION ignored() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
		w.database.Exec(w.t, "CREATE TRIGGER ignored BEFORE INSERT ON postbox_dead_letters FOR EACH ROW EXECUTE FUNCTION ignored()")
		transfer := w.transfer(w.database.DB, nil)
		transfer.step(w.t.Context())
		require.Equal(w.t, 1, w.left())
		w.database.Exec(w.t, "DROP TRIGGER ignored ON postbox_dead_letters")
		w.eventually(func() bool { transfer.step(w.t.Context()); return w.left() == 0 }, "it is moved")
		require.Equal(w.t, 1, w.dead())
	})
}

func (w *oldWorld) insertRaw() string {
	if w.database.Dialect == postbox.MySQL {
		return "INSERT INTO " + w.schemaTable() + " (uuid, payload, metadata) VALUES (?, ?, ?)"
	}
	return "INSERT INTO " + w.schemaTable() + " (uuid, payload, metadata, transaction_id) VALUES (?, ?, ?, pg_current_xact_id())"
}

func TestTransfer_every_payload_type(t *testing.T) {
	t.Parallel()
	types := map[postbox.Dialect][]string{
		postbox.PostgreSQL: {"JSON", "JSONB", "BYTEA", "TEXT"},
		postbox.MySQL:      {"JSON", "LONGBLOB", "VARBINARY(255)", "TEXT"},
	}
	eachOldWorld(t, func(w *oldWorld) {
		for i, payload := range types[w.database.Dialect] {
			w.source.Topic, w.source.Destination = fmt.Sprintf("events.%d-$:", i), "orders"
			w.useSchema(func(string) string { return payload })
			w.publish(w.database.DB, payload) // makes the table of messages, and none of offsets
			w.database.Exec(w.t, strings.Replace(w.insertRaw(), "?, ?, ?", "?, NULL, NULL", 1), "null")
			require.Equal(w.t, 2, w.step(w.transfer(w.database.DB, nil)), payload)
			came := w.moved()[2*i:]
			require.JSONEq(w.t, `{"id": "`+payload+`"}`, came[0].payload)
			require.Equal(w.t, moved{topic: "orders", id: payload, key: "orders", payload: came[0].payload, metadata: map[string]string{"id": payload}}, came[0])
			require.Equal(w.t, moved{topic: "orders", id: "null", key: "orders", metadata: map[string]string{}}, came[1])
		}
	})
}

// A process may die at any statement: its transaction goes, its locks with it, and nothing of it
// was seen. Also covers F5 and F20.
func TestTransfer_G2_a_process_that_dies_leaves_no_trace(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.initialize()
		w.publish(w.database.DB, ids("m", 0, 10)...)
		dying, other := w.transfer(w.database.Open(w.t), nil), w.transfer(w.database.DB, nil)
		require.NoError(w.t, dying.register(w.t.Context()))
		tx := w.begin(dying.db)
		p := &page{transfer: dying, tx: tx, group: noGroup}
		require.NoError(w.t, p.run(w.t.Context()))
		require.Len(w.t, p.rows, 10)

		require.Zero(w.t, w.step(other), "one at a time")
		w.publish(w.database.DB, "meanwhile") // no producer waits
		require.Zero(w.t, w.step(other))
		require.NoError(w.t, tx.Rollback())
		require.Equal(w.t, 11, w.step(other))
		require.Equal(w.t, append(ids("m", 0, 10), "meanwhile"), w.movedIDs())
		require.Zero(w.t, w.left())
	})
}

// Two sets of tables do not know each other's locks: whoever deletes a row has it.
func TestTransfer_G2_rows_that_another_transaction_deletes_are_not_transferred(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.initialize()
		w.publish(w.database.DB, "a", "b")
		transfer := w.transfer(w.database.DB, nil)
		require.NoError(w.t, transfer.register(w.t.Context()))
		tx := w.begin(w.database.Open(w.t))
		p := &page{transfer: transfer, tx: tx, group: noTable}
		require.NoError(w.t, p.read(w.t.Context()))
		require.NoError(w.t, p.append(w.t.Context()))
		w.database.Exec(w.t, "DELETE FROM "+w.schemaTable()+" WHERE uuid = 'a'")
		require.ErrorIs(w.t, p.remove(w.t.Context()), errContended)
		require.NoError(w.t, tx.Rollback())
		require.Equal(w.t, 1, w.step(transfer))
		require.Equal(w.t, []string{"b"}, w.movedIDs())
	})
}

func TestTransfer_waits_for_a_missing_table_and_says_so_once(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		logger := watermill.NewCaptureLogger()
		transfer := w.transfer(w.database.DB, logger)
		for range 3 {
			require.Zero(w.t, w.step(transfer))
		}
		require.Len(w.t, w.errors(logger), 1)
		require.Equal(w.t, troubleMissing, transfer.trouble)
		w.publish(w.database.DB, "m")
		require.Equal(w.t, 1, w.step(transfer))
		require.Len(w.t, w.errors(logger), 1)
	})
}

func TestTransfer_G8_large_rows_make_small_pages(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.initialize()
		large := strings.Repeat("x", 6<<10)
		for i := range 5 {
			require.NoError(w.t, w.publisher(w.database.DB).Publish(w.source.Topic, message.NewMessage(fmt.Sprint(i), []byte(large))))
		}
		transfer := w.transfer(w.database.DB, nil)
		transfer.maxBytes = 16 << 10
		require.Equal(w.t, 3, w.step(transfer))
		require.Equal(w.t, 3, transfer.limit)
		require.Equal(w.t, 2, w.step(transfer))
		require.Equal(w.t, 6, transfer.limit)
		require.Equal(w.t, []string{"0", "1", "2", "3", "4"}, w.movedIDs())
	})
}

func TestTransfer_one_poll_of_an_idle_source_is_one_statement(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.initialize()
		transfer := w.transfer(w.database.DB, nil)
		require.Zero(w.t, w.step(transfer)) // registers
		w.database.Exec(w.t, "DROP TABLE "+w.offsetsTable())
		require.Zero(w.t, w.step(transfer))
		require.False(w.t, transfer.more, "nothing was found, so no transaction is begun")
		require.Equal(w.t, noTable, func() groupState { s, err := transfer.group(w.t.Context()); require.NoError(w.t, err); return s }())
		w.database.Exec(w.t, "DELETE FROM postbox_sources")
		w.publish(w.database.DB, "m")
		require.Equal(w.t, 1, w.step(transfer), "a source that was forgotten is registered again")
	})
}

func TestTransfer_wakes_the_drainer(t *testing.T) {
	t.Parallel()
	w := newOldWorld(t, testdb.Postgres(t))
	w.initialize()
	w.publish(w.database.DB, ids("m", 0, 100)...)
	published := &oldBroker{}
	fwd, err := forwarder.New(w.database.Postbox(), published, forwarder.Config{Sources: []forwarder.Source{w.source}}, nil)
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		if err := fwd.Run(t.Context()); err != nil {
			t.Errorf("run: %s", err)
		}
	})
	w.eventually(func() bool { return len(published.ids()) == 100 }, "what was taken over is forwarded")
	require.Equal(t, ids("m", 0, 100), published.ids(), "in the order of the table")
	require.NoError(t, fwd.Close())
	running.Wait()
}

// The server ends statements that take longer than a limit of the role. To store a page does, and
// to store a few messages does not.
func TestTransfer_G8_a_page_that_the_server_ends_is_halved(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		const messages = 64
		limit, slow := "statement_timeout=600", "CREATE TRIGGER slow AFTER INSERT ON postbox_messages FOR EACH ROW EXECUTE FUNCTION slow()"
		if w.database.Dialect != postbox.PostgreSQL {
			if !w.database.IsMariaDB(w.t) {
				w.t.Skip("MariaDB is missing: MySQL ends no statements that write")
			}
			limit, slow = "max_statement_time=0.6", "CREATE TRIGGER slow AFTER INSERT ON postbox_messages FOR EACH ROW DO SLEEP(0.02)"
		} else {
			w.database.Exec(w.t, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN NULL; END $$")
		}
		w.source.PageSize = messages
		w.initialize()
		w.publish(w.database.DB, ids("m", 0, messages)...)
		w.database.Exec(w.t, slow) // 1.28 seconds for a page
		w.start(w.transfer(w.database.OpenWith(w.t, limit), nil))
		w.eventually(func() bool { return w.left() == 0 }, "everything is taken over")
		require.Equal(w.t, ids("m", 0, messages), w.movedIDs())
	})
}

// errorOf is the error of an action, whatever it has changed.
func errorOf(_ int, err error) error { return err }
