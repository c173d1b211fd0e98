package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	wmforwarder "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
)

// oldTopic is the forwarder topic of Watermill's forwarder, and so names the table:
// watermill_migration_example_events.
const oldTopic = "migration_example_events"

var oldSchema = wmsql.DefaultPostgreSQLSchema{}

// publishTheOldWay is what producers do with watermill-sql and Watermill's forwarder: a publisher
// for each transaction, in a publisher that wraps events in envelopes.
func (a app) publishTheOldWay(tx *sql.Tx, event *message.Message) error {
	table, err := wmsql.NewPublisher(tx, wmsql.PublisherConfig{SchemaAdapter: oldSchema}, a.logger)
	if err != nil {
		return err
	}
	return wmforwarder.NewPublisher(table, wmforwarder.PublisherConfig{ForwarderTopic: oldTopic}).Publish(orderPlaced, event)
}

// startOldDaemon starts Watermill's forwarder as it is used with watermill-sql, and makes its
// tables.
func (a app) startOldDaemon(ctx context.Context) (stop func() error, err error) {
	quiet := watermill.NopLogger{} // when it is stopped it complains that it was
	subscriber, err := wmsql.NewSubscriber(a.db, wmsql.SubscriberConfig{
		SchemaAdapter: oldSchema, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{}, PollInterval: 10 * time.Millisecond,
	}, quiet)
	if err != nil {
		return nil, err
	}
	if err := subscriber.SubscribeInitialize(oldTopic); err != nil {
		return nil, err
	}
	daemon, err := wmforwarder.NewForwarder(subscriber, a.broker, quiet, wmforwarder.Config{ForwarderTopic: oldTopic})
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx) }()
	select {
	case <-daemon.Running():
		return func() error { return errors.Join(daemon.Close(), <-ended) }, nil
	case err := <-ended:
		return nil, err
	}
}
