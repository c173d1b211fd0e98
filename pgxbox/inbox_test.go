package pgxbox_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/pgxbox"
)

// inbox hands a message to the inbox, as a router would.
func (s *service) inbox(store *inboxstore.Store) func(ctx context.Context, id string, handle message.NoPublishHandlerFunc) error {
	s.t.Helper()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "payments", Topic: "orders"}, nil)
	require.NoError(s.t, err)
	return func(ctx context.Context, id string, handle message.NoPublishHandlerFunc) error {
		msg := message.NewMessage(id, []byte("{}"))
		msg.SetContext(ctx)
		_, err := inbox.Process(ctx, msg, func(msg *message.Message) ([]*message.Message, error) { return nil, handle(msg) })
		return err
	}
}

func TestInbox_G4_effects_of_batches_and_copies_are_had_once(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		receive := s.inbox(s.store())
		require.NoError(t, receive(t.Context(), "first", func(msg *message.Message) error { return s.effect(msg.Context(), msg.UUID) }))
		var copies sync.WaitGroup
		for range 6 {
			copies.Go(func() {
				if err := receive(t.Context(), "second", func(msg *message.Message) error { return s.effect(msg.Context(), msg.UUID) }); err != nil {
					t.Error(err)
				}
			})
		}
		copies.Wait()
		fail := true
		failing := func(msg *message.Message) error {
			if err := s.effect(msg.Context(), msg.UUID); err != nil || !fail {
				return err
			}
			return errHandler
		}
		require.ErrorIs(t, receive(t.Context(), "third", failing), errHandler)
		s.wrote("first", "second")
		fail = false
		require.NoError(t, receive(t.Context(), "third", failing))
		s.wrote("first", "second", "third")
	})
}

func TestInbox_G4_a_handler_publishes_in_its_transaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		receive, publisher := s.inbox(s.store()), s.publisher()
		for _, err := range []error{errHandler, nil} {
			require.ErrorIs(t, receive(t.Context(), "id", func(msg *message.Message) error {
				require.NoError(t, s.effect(msg.Context(), msg.UUID))
				require.NoError(t, published(msg.Context(), publisher, "out"))
				return err
			}), err)
		}
		s.wrote("id")
		require.Equal(t, 1, s.pending())
	})
}

// What a handler has left behind cannot use its transaction, nor a later one on the same
// connection.
func TestTx_that_outlives_its_handler_writes_nothing(t *testing.T) {
	t.Parallel()
	s := newService(t, 1)
	receive := s.inbox(s.store())
	var left pgx.Tx
	var leftContext context.Context
	require.NoError(t, receive(t.Context(), "id", func(msg *message.Message) error {
		leftContext = msg.Context()
		left, _ = pgxbox.TxFromContext(msg.Context())
		return s.effect(msg.Context(), msg.UUID)
	}))
	later := func(ctx context.Context) {
		_, err := left.Exec(ctx, s.insert(), "late", 0, []string{})
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		require.ErrorIs(t, left.QueryRow(ctx, "SELECT 1").Scan(new(int)), pgx.ErrTxClosed)
		rows, err := left.Query(ctx, "SELECT 1")
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		require.False(t, rows.Next())
		rows.Close()
		require.ErrorIs(t, rows.Err(), pgx.ErrTxClosed)
		batch := &pgx.Batch{}
		batch.Queue("SELECT 1")
		require.ErrorIs(t, left.SendBatch(ctx, batch).Close(), pgx.ErrTxClosed)
		_, err = left.CopyFrom(ctx, s.table(), []string{"id"}, pgx.CopyFromRows(nil))
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		_, err = left.Begin(ctx)
		require.ErrorIs(t, err, pgx.ErrTxClosed)
	}
	later(t.Context())
	_, found := pgxbox.TxFromContext(leftContext)
	require.False(t, found)
	require.NoError(t, receive(t.Context(), "next", func(msg *message.Message) error {
		later(msg.Context())
		return s.effect(msg.Context(), msg.UUID)
	}))
	s.wrote("id", "next")
}

func TestInbox_G4_a_connection_that_is_killed_has_no_effect(t *testing.T) { //nolint:paralleltest // see eachAlone
	eachAlone(t, func(t *testing.T, s *service) {
		receive := s.inbox(s.store())
		killed := false
		handle := func(msg *message.Message) error {
			if err := s.effect(msg.Context(), msg.UUID); err != nil || killed {
				return err
			}
			killed = true
			tx, _ := pgxbox.TxFromContext(msg.Context())
			var session int
			require.NoError(t, tx.QueryRow(msg.Context(), "SELECT pg_backend_pid()").Scan(&session))
			s.Exec(t, "SELECT pg_terminate_backend(?)", session)
			_, err := tx.Exec(msg.Context(), s.insert(), msg.UUID, 9, []string{})
			for err == nil { // the server ends the session soon
				_, err = tx.Exec(msg.Context(), "SELECT 1")
			}
			return err
		}
		require.Error(t, receive(t.Context(), "id", handle))
		s.wrote()
		s.eventually(func() bool { return receive(t.Context(), "id", handle) == nil }, "it is handled when it comes again")
		s.wrote("id")
	})
}

func TestInbox_G4_a_context_that_ends_has_no_effect(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		store := s.store()
		var runs atomic.Int32
		once := func(ctx context.Context, then func(ctx context.Context) error) error {
			_, err := store.Once(ctx, inboxstore.Key{Consumer: "payments", Topic: "orders", MessageID: "id"}, func(ctx context.Context) error {
				runs.Add(1)
				return errors.Join(s.effect(ctx, "id"), then(ctx))
			})
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1) // a deadline of the delivery is the handler's, too
		defer cancel()
		require.Error(t, once(ctx, func(context.Context) error { return nil }))
		ctx, cancel = context.WithTimeout(t.Context(), shortly)
		defer cancel()
		require.Error(t, once(ctx, func(ctx context.Context) error {
			tx, _ := pgxbox.TxFromContext(ctx)
			_, err := tx.Exec(ctx, "SELECT pg_sleep(600)")
			return err
		}))
		s.wrote()
		require.NoError(t, once(t.Context(), func(context.Context) error { return nil }))
		s.wrote("id")
	})
}
