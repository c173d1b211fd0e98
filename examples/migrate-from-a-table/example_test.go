package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

const result = `^RESULT orders=\d+ rows_of_the_old_table=\d+ deliveries=\d+ duplicates_absorbed=[1-9]\d* placed_again=\d+ lost=0 twice=0 out_of_order=0 dead=0 left=0$`

// onGoChannel is the application on a database of a test.
func onGoChannel(database *testdb.Database, out io.Writer) application {
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	return application{
		tables: postbox.Database{DB: database.DB, Dialect: database.Dialect, Prefix: prefix},
		broker: broker, subscriber: broker, topic: "orders", logger: watermill.NopLogger{}, out: out,
	}
}

// Also covers G2, and feature 3.5.
func TestRun_G3_changes_there_and_back_while_orders_are_placed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		var out bytes.Buffer
		require.NoError(t, onGoChannel(database, &out).run(t.Context()), out.String())
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Regexp(t, result, lines[len(lines)-1], out.String())
	})
}

// Also covers G2, and feature 3.5.
func TestRun_G3_changes_there_and_back_with_RabbitMQ(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, pipes.Settings{
		Database: "sqlite", Broker: "rabbitmq", BrokerURL: testservice.Address(t, testservice.AMQPVariable), TopicPrefix: "example.",
	}), out.String())
}

// newWorld is a shop in which nothing runs.
func newWorld(t *testing.T, database *testdb.Database) *shop {
	t.Helper()
	s, err := onGoChannel(database, io.Discard).newShop(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.outbox.Close()) })
	return s
}

func (s *shop) place(t *testing.T, ways ...way) {
	t.Helper()
	for _, how := range ways {
		require.NoError(t, s.placeOrder(t.Context(), how, nameOf(1)))
	}
}

// inOutbox returns the bodies of the messages in the outbox, in their order.
func (s *shop) inOutbox(t *testing.T) (bodies []string) {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), "SELECT payload FROM "+prefix+"messages ORDER BY id")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var body []byte
		require.NoError(t, rows.Scan(&body))
		bodies = append(bodies, string(body))
	}
	require.NoError(t, rows.Err())
	return bodies
}

func TestPublishAfterMoving_G3_moves_earlier_rows_of_the_key_first(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newWorld(t, database)
		require.NoError(t, s.placeOrder(t.Context(), old, nameOf(2)))
		s.place(t, old, old, switching, switching)
		require.Equal(t, []string{"customer 1/1", "customer 1/2", "customer 1/3", "customer 1/4"}, s.inOutbox(t))
		require.Equal(t, 1, database.Count(t, pendingRows), "that of another customer")

		s.place(t, old, changed)
		require.Equal(t, "customer 1/6", s.inOutbox(t)[4], "which is why the last step waits for an empty table")
	})
}

func TestPublishAfterMoving_G1_leaves_the_rows_when_the_transaction_rolls_back(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newWorld(t, database)
		s.place(t, old)
		refused := postbox.InTxWith(t.Context(), s.db, s.table.isolation, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, s.table.publishAfterMoving(ctx, tx, s.outbox, event{id: "1", topic: "orders", customer: nameOf(1), body: "x"}))
			return io.ErrUnexpectedEOF
		})
		require.ErrorIs(t, refused, io.ErrUnexpectedEOF)
		require.Empty(t, s.inOutbox(t))
		require.Equal(t, 1, database.Count(t, pendingRows))

		moved, err := mover{db: s.db, table: s.table, outbox: s.outbox}.movePage(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, moved)
		require.Equal(t, []string{"customer 1/1"}, s.inOutbox(t))
	})
}

// A mover that skipped locked rows could move later rows of the key before the producer commits.
func TestMover_G3_waits_for_rows_that_a_producer_is_moving(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	s := newWorld(t, database)
	s.place(t, old)
	moving, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		ended <- postbox.InTx(context.WithoutCancel(t.Context()), s.db, func(ctx context.Context, tx *sql.Tx) error {
			err := s.table.publishAfterMoving(ctx, tx, s.outbox, event{id: "2", topic: "orders", customer: nameOf(1), body: "customer 1/2"})
			close(moving)
			<-release
			return err
		})
	}()
	<-moving
	go func() {
		_, err := mover{db: s.db, table: s.table, outbox: s.outbox}.movePage(context.WithoutCancel(t.Context()))
		ended <- err
	}()
	waits := func() bool {
		return database.Count(t, "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%from_table_events%' AND cardinality(pg_blocking_pids(pid)) > 0") > 0
	}
	require.Eventually(t, waits, 20*time.Second, 5*time.Millisecond)
	close(release)
	require.NoError(t, errors.Join(<-ended, <-ended))
	require.Equal(t, []string{"customer 1/1", "customer 1/2"}, s.inOutbox(t))
}

// A message keeps the id of its row, so that an inbox recognises what the relay had published.
func TestMover_G4_keeps_ids(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		s := newWorld(t, database)
		s.place(t, old)
		rows, err := s.table.pending(t.Context(), s.db, 1)
		require.NoError(t, err)
		_, err = mover{db: s.db, table: s.table, outbox: s.outbox}.movePage(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM "+prefix+"messages WHERE message_id = ?", []byte(rows[0].id)))
		_, err = mover{db: s.db, table: s.table, outbox: s.outbox}.movePage(t.Context())
		require.NoError(t, err)
		require.Len(t, s.inOutbox(t), 1, "it is moved once")
	})
}

// The example is worth something only if it sees what goes wrong.
func TestVerify_detects_wrong_results(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		invoices []int // orders of one customer that has placed two, one of them in the old table
		want     string
	}{
		"nothing":      {[]int{1, 2}, ""},
		"lost":         {[]int{2}, "orders have no invoice"},
		"twice":        {[]int{1, 2, 2}, "orders have two invoices"},
		"out of order": {[]int{2, 1}, "before one for an earlier order"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.SQLite(t)
			s := newWorld(t, database)
			s.place(t, old, switching)
			database.Exec(t, "DELETE FROM "+prefix+"messages")
			for _, order := range c.invoices {
				database.Exec(t, "INSERT INTO from_table_invoices (customer, order_number) VALUES (?, ?)", nameOf(1), order)
			}
			s.deliveries.Store(3)
			err := s.verify(t.Context())
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}
