package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/examples/cqrs/contract"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// What docs/cqrs.md says of the claim of a group.
func TestGroup_G4_claims_an_event_for_all_its_handlers(t *testing.T) {
	t.Parallel()
	p, err := pipes.Settings{Database: "sqlite", Broker: "gochannel"}.Open(t.Context(), prefix)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	_, err = p.DB.ExecContext(t.Context(), tables)
	require.NoError(t, err)
	store, err := inboxstore.New(p.Tables(prefix), inboxstore.Config{}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "billing", Topic: events, Retry: soon}, nil)
	require.NoError(t, err)

	s := &shop{marshaler: marshalers["protobuf"], trouble: &trouble{}}
	payment := s.write(`INSERT INTO cqrs_payments (order_id) VALUES ($1)`)
	fails := true
	points := func(ctx context.Context, event *contract.OrderPlaced) error {
		if fails {
			return errPlanned
		}
		return s.write(`INSERT INTO cqrs_points (order_id) VALUES ($1)`)(ctx, event)
	}
	order, err := s.marshaler.Marshal(&contract.OrderPlaced{OrderId: "1"})
	require.NoError(t, err)
	paid := func() int {
		n, err := count(t.Context(), p.DB, "SELECT COUNT(*) FROM cqrs_payments")
		require.NoError(t, err)
		return n
	}

	group := s.group(t, cqrs.NewGroupEventHandler(payment), cqrs.NewGroupEventHandler(points))
	_, err = inbox.Process(t.Context(), order, group)
	require.ErrorIs(t, err, errPlanned)
	require.Zero(t, paid(), "all handlers of an event commit together, or none")
	fails = false
	processed, err := inbox.Process(t.Context(), order, group)
	require.NoError(t, err)
	require.True(t, processed)
	require.Equal(t, 1, paid())

	unknown, err := s.marshaler.Marshal(&contract.PlaceOrder{OrderId: "2"})
	require.NoError(t, err)
	processed, err = inbox.Process(t.Context(), unknown, group)
	require.NoError(t, err)
	require.True(t, processed, "an event for which the group has no handler is claimed, too")

	late := 0
	larger := s.group(t,
		cqrs.NewGroupEventHandler(func(context.Context, *contract.OrderPlaced) error { late++; return nil }),
		cqrs.NewGroupEventHandler(func(context.Context, *contract.PlaceOrder) error { late++; return nil }),
	)
	for _, msg := range []*message.Message{order, unknown} {
		processed, err = inbox.Process(t.Context(), msg, larger)
		require.NoError(t, err)
		require.False(t, processed)
	}
	require.Zero(t, late, "handlers that are added later get new events only")
}

func (s *shop) group(t *testing.T, handlers ...cqrs.GroupEventHandler) message.HandlerFunc {
	t.Helper()
	functions, err := s.groupHandlers("billing", handlers...)
	require.NoError(t, err)
	return functions["billing"]
}
