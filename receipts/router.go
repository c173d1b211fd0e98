package receipts

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
	"github.com/postbox-go/watermill-postbox/router"
)

// AddReceiver adds a receiver to a router, for the receipts of messages from the outboxes in db.
// The handler of this name stores the receipts that consumers publish on the topic. A second
// handler, with "_overdue" behind the name, looks for receipts that are overdue, and deletes old
// ones. Both start and stop with the router, so do not call Run of the result: it would fail, and
// with it the router. In several processes, each stores receipts, and one at a time does the rest.
// The receiver logs what the Watermill router logs to.
//
// A receipt needs no inbox: one that comes again changes nothing.
func AddReceiver(r *router.Router, name, topic string, subscriber message.Subscriber, db postbox.Database, config Config) (*Receiver, error) {
	watermillRouter := r.Router()
	logger := watermillRouter.Logger()
	receiver, err := NewReceiver(db, config, logger)
	if name == "" {
		err = errors.Join(err, errors.New("the name is empty"))
	}
	if topic == "" {
		err = errors.Join(err, errors.New("the topic is empty"))
	}
	if given.Nil(subscriber) {
		err = errors.Join(err, errors.New("the subscriber is nil"))
	}
	if open := r.Open(); open != nil {
		err = errors.Join(err, open)
	} else { // Watermill changes its list of handlers while it runs, and does not lock it
		err = errors.Join(err, lifecycle.Free(watermillRouter, name), lifecycle.Free(watermillRouter, overdueName(name)))
	}
	if err != nil { // before anything stays on the router
		return nil, fmt.Errorf("add receiver %q: %w", name, err)
	}
	if err := lifecycle.Add(watermillRouter, overdueName(name), topic, receiver, logger); err != nil {
		return nil, fmt.Errorf("add receiver %q: %w", name, err)
	}
	watermillRouter.AddConsumerHandler(name, topic, subscriber, receiver.Handle)
	return receiver, nil
}

// overdueName is the name of the handler that looks for overdue receipts.
func overdueName(name string) string { return name + "_overdue" }
