package router

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
	"github.com/postbox-go/watermill-postbox/receipts"
)

// AddReceiver adds a receiver for the receipts of messages from the outboxes in db. The handler of
// this name stores the receipts that consumers publish on the topic. A second handler, with
// "_overdue" behind the name, looks for receipts that are overdue, and deletes old ones. Both start
// and stop with the router, so do not call Run of the result: it would fail, and with it the
// router. In several processes, each stores receipts, and one at a time does the rest.
//
// A receipt needs no inbox: one that comes again changes nothing.
func (r *Router) AddReceiver(
	name, topic string, subscriber message.Subscriber, db postbox.Database, config receipts.Config,
) (*receipts.Receiver, error) {
	receiver, err := receipts.NewReceiver(db, config, r.logger)
	if name == "" {
		err = errors.Join(err, errors.New("the name is empty"))
	}
	if topic == "" {
		err = errors.Join(err, errors.New("the topic is empty"))
	}
	if given.Nil(subscriber) {
		err = errors.Join(err, errors.New("the subscriber is nil"))
	}
	if err := errors.Join(err, r.free(name), lifecycle.Free(r.router, overdueName(name))); err != nil { // before anything stays on the router
		return nil, fmt.Errorf("add receiver %q: %w", name, err)
	}
	if err := lifecycle.Add(r.router, overdueName(name), topic, receiver, r.logger); err != nil {
		return nil, fmt.Errorf("add receiver %q: %w", name, err)
	}
	r.router.AddConsumerHandler(name, topic, subscriber, receiver.Handle)
	return receiver, nil
}

// overdueName is the name of the handler that looks for overdue receipts.
func overdueName(name string) string { return name + "_overdue" }
