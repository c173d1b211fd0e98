package transactions_test

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/middleware"
)

// marshaler names all messages alike, so that one is a command or an event, as its handler has it.
var marshaler = cqrs.JSONMarshaler{GenerateName: func(any) string { return "order" }}

// addCommandHandler adds a handler of a command behind an inbox, as docs/cqrs.md shows.
func addCommandHandler(s *service, handle handler) error {
	processor, err := cqrs.NewCommandProcessorWithConfig(s.router.Router(), cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return "orders", nil },
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.broker, nil
		},
		OnHandle:  middleware.GuardCommands,
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}
	return s.addProcessed(func(handle func(context.Context, *OrderPlaced) error) (*message.Handler, error) {
		return processor.AddHandler(cqrs.NewCommandHandler("payments", handle))
	}, handle)
}

// addEventHandler does the same for an event.
func addEventHandler(s *service, handle handler) error {
	processor, err := cqrs.NewEventProcessorWithConfig(s.router.Router(), cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return "orders", nil },
		SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.broker, nil
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}
	return s.addProcessed(func(handle func(context.Context, *OrderPlaced) error) (*message.Handler, error) {
		return processor.AddHandler(cqrs.NewEventHandler("payments", handle))
	}, handle)
}

// addProcessed adds the inbox to a handler that publishes its answer with a bus, before it fails.
func (s *service) addProcessed(add func(func(context.Context, *OrderPlaced) error) (*message.Handler, error), handle handler) error {
	inbox, err := middleware.NewInbox(s.store, middleware.InboxConfig{Retry: soon}, nil)
	if err != nil {
		return err
	}
	bus, err := cqrs.NewEventBusWithConfig(s.outbox, cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "answers", nil },
		Marshaler:            marshaler,
	})
	if err != nil {
		return err
	}
	added, err := add(func(ctx context.Context, order *OrderPlaced) error {
		return errors.Join(bus.Publish(ctx, order), handle(ctx, order.OrderID))
	})
	if err != nil {
		return err
	}
	added.AddMiddleware(inbox.Middleware)
	return nil
}
