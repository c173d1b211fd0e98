package pgxbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
)

type orderPlaced struct{}

// A handler of an EventProcessor writes in the pgx.Tx of the inbox, and publishes with an EventBus.
func TestInbox_G4_a_handler_of_cqrs_works_in_its_transaction(t *testing.T) {
	t.Parallel()
	marshaler := cqrs.JSONMarshaler{GenerateName: func(any) string { return "order" }}
	each(t, func(t *testing.T, s *service) {
		receive := s.inbox(s.store())
		bus, err := cqrs.NewEventBusWithConfig(s.publisher(), cqrs.EventBusConfig{
			GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "orders", nil },
			Marshaler:            marshaler,
		})
		require.NoError(t, err)
		unused := message.NewDefaultRouter(nil) // it never runs, as in docs/cqrs.md
		processor, err := cqrs.NewEventProcessorWithConfig(unused, cqrs.EventProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return "orders", nil },
			SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return nil, nil
			},
			Marshaler: marshaler,
		})
		require.NoError(t, err)
		var outcome error
		_, err = processor.AddHandler(cqrs.NewEventHandler("payments", func(ctx context.Context, event *orderPlaced) error {
			return errors.Join(s.effect(ctx, "id"), bus.Publish(ctx, event), outcome)
		}))
		require.NoError(t, err)
		for _, outcome = range []error{errHandler, nil, nil} {
			err := receive(t.Context(), "id", func(msg *message.Message) error {
				msg.Metadata.Set("name", "order")
				_, err := unused.Handlers()["payments"](msg)
				return err
			})
			require.ErrorIs(t, err, outcome)
		}
		s.wrote("id")
		require.Equal(t, 1, s.pending())
	})
}
