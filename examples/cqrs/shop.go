package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/cqrs/contract"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

// The topics of commands and events.
const (
	commands = "cqrs.commands"
	events   = "cqrs.events"
)

type shop struct {
	pipes     *pipes.Pipes
	store     *inboxstore.Store
	router    *router.Router
	marshaler cqrs.CommandEventMarshaler
	trouble   *trouble

	commandBus *cqrs.CommandBus
	eventBus   *cqrs.EventBus
}

// makeBuses makes both buses on the outbox. The transaction travels in the context.
func (s *shop) makeBuses(outbox message.Publisher) (err error) {
	s.commandBus, err = cqrs.NewCommandBusWithConfig(outbox, cqrs.CommandBusConfig{
		GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return commands, nil },
		OnSend: func(params cqrs.CommandBusOnSendParams) error {
			setKey(params.Message, params.Command)
			return nil
		},
		Marshaler: s.marshaler,
	})
	if err != nil {
		return err
	}
	s.eventBus, err = cqrs.NewEventBusWithConfig(outbox, cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return events, nil },
		OnPublish: func(params cqrs.OnEventSendParams) error {
			setKey(params.Message, params.Event)
			return nil
		},
		Marshaler: s.marshaler,
	})
	return err
}

// setKey keeps what concerns a customer in its order.
func setKey(msg *message.Message, of any) {
	if of, ok := of.(interface{ GetCustomer() string }); ok {
		msg.Metadata.Set(postbox.MetadataOrderingKey, of.GetCustomer())
	}
}

func (s *shop) place(ctx context.Context, command *contract.PlaceOrder) error {
	return postbox.InTx(ctx, s.pipes.DB, func(ctx context.Context, _ *sql.Tx) error {
		return s.commandBus.Send(ctx, command)
	})
}

// addCommands adds the handler of a command with an inbox around it.
func (s *shop) addCommands() error {
	inbox, err := middleware.NewInbox(s.store, middleware.InboxConfig{MapError: malformed, Retry: soon}, s.pipes.Logger)
	if err != nil {
		return err
	}
	processor, err := cqrs.NewCommandProcessorWithConfig(s.router.Router(), cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return commands, nil },
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.pipes.NewSubscriber("cqrs-commands", commands)
		},
		OnHandle:  middleware.GuardCommands,
		Marshaler: s.marshaler,
	})
	if err != nil {
		return err
	}
	added, err := processor.AddHandler(cqrs.NewCommandHandler("place-order", s.handlePlaceOrder))
	if err != nil {
		return err
	}
	added.AddMiddleware(inbox.Middleware)
	return nil
}

func (s *shop) handlePlaceOrder(ctx context.Context, command *contract.PlaceOrder) error {
	tx, found := postbox.TxFromContext(ctx)
	if !found {
		return postbox.ErrNoTransaction
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO cqrs_orders (id, customer) VALUES ($1, $2)`, command.GetOrderId(), command.GetCustomer())
	if err != nil {
		return err
	}
	return s.eventBus.Publish(ctx, &contract.OrderPlaced{OrderId: command.GetOrderId(), Customer: command.GetCustomer(), Cents: command.GetCents()})
}

// addGroup adds a group of handlers with one inbox around all of them.
func (s *shop) addGroup() error {
	handlers, err := s.groupHandlers("billing",
		cqrs.NewGroupEventHandler(s.insert(`INSERT INTO cqrs_payments (order_id) VALUES ($1)`)),
		cqrs.NewGroupEventHandler(s.insert(`INSERT INTO cqrs_points (order_id) VALUES ($1)`)),
	)
	if err != nil {
		return err
	}
	subscriber, err := s.pipes.NewSubscriber("cqrs-billing", events)
	if err != nil {
		return err
	}
	_, err = s.router.AddInboxHandler("billing", events, subscriber, "", handlers["billing"], middleware.InboxConfig{MapError: malformed, Retry: soon})
	return err
}

func (s *shop) groupHandlers(name string, handlers ...cqrs.GroupEventHandler) (map[string]message.HandlerFunc, error) {
	return handlersOf(func(unused *message.Router) error {
		processor, err := cqrs.NewEventGroupProcessorWithConfig(unused, cqrs.EventGroupProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) { return events, nil },
			SubscriberConstructor: func(cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return nil, nil // AddInboxHandler has it
			},
			AckOnUnknownEvent: true,
			Marshaler:         s.marshaler,
		})
		if err != nil {
			return err
		}
		return processor.AddHandlersGroup(name, handlers...)
	})
}

// handlersOf returns the functions that a processor adds to a router, by their names. The router
// never runs: package router adds each function with what belongs around it.
func handlersOf(add func(unused *message.Router) error) (map[string]message.HandlerFunc, error) {
	unused := message.NewDefaultRouter(nil)
	err := add(unused)
	return unused.Handlers(), err
}

// addStatistics adds a handler whose events are stored in a queue, and handled from there: one at a
// time for each customer, in their order.
func (s *shop) addStatistics() error {
	handlers, err := handlersOf(func(unused *message.Router) error {
		processor, err := cqrs.NewEventProcessorWithConfig(unused, cqrs.EventProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return events, nil },
			SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return nil, nil // AddQueueHandler has it
			},
			AckOnUnknownEvent: true,
			Marshaler:         s.marshaler,
		})
		if err != nil {
			return err
		}
		_, err = processor.AddHandler(cqrs.NewEventHandler("statistics", s.insert(`
			INSERT INTO cqrs_sales (order_id, customer, position)
			SELECT id, customer, (SELECT COUNT(*) FROM cqrs_sales s WHERE s.customer = o.customer) FROM cqrs_orders o WHERE id = $1`)))
		return err
	})
	if err != nil {
		return err
	}
	subscriber, err := s.pipes.NewSubscriber("cqrs-statistics", events)
	if err != nil {
		return err
	}
	_, err = s.router.AddQueueHandler("statistics", events, subscriber, "", handlers["statistics"], router.QueueConfig{
		Worker: queue.Config{
			Transactional: true, Retry: soon,
			MapError: func(failure queue.Failure) error { return malformed(failure.Message, failure.Err) },
		},
	})
	return err
}

// insert returns a handler that writes, and fails at times after that.
func (s *shop) insert(statement string) func(ctx context.Context, event *contract.OrderPlaced) error {
	write := s.write(statement)
	return func(ctx context.Context, event *contract.OrderPlaced) error {
		if err := write(ctx, event); err != nil {
			return err
		}
		return s.trouble.strike()
	}
}

// write returns a handler that writes in the transaction of the inbox or of the queue.
func (*shop) write(statement string) func(ctx context.Context, event *contract.OrderPlaced) error {
	return func(ctx context.Context, event *contract.OrderPlaced) error {
		tx, found := postbox.TxFromContext(ctx)
		if !found {
			return postbox.ErrNoTransaction
		}
		_, err := tx.ExecContext(ctx, statement, event.GetOrderId())
		return err
	}
}

// soon makes the example quick.
var soon = postbox.RetryProfile{Base: 10 * time.Millisecond, Cap: 100 * time.Millisecond}

// malformed says that no retry can help where a payload cannot be read.
func malformed(_ *message.Message, err error) error {
	var syntax *json.SyntaxError
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &wrongType) || errors.Is(err, proto.Error) {
		return postbox.Permanent(err)
	}
	return err
}
