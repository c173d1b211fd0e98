package chain

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	sqlv3 "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	sqlv4 "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

const sqlInterval = 10 * time.Millisecond

// sqlBroker is a PostgreSQL of its own. Neither outbox nor inbox is in it.
func sqlBroker(ctx context.Context, clients func(db *sql.DB) (message.Publisher, message.Subscriber, error)) (*broker, error) {
	cluster, err := testcluster.StartPostgres(ctx)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("postgres", cluster.PrimaryDSN("postgres"))
	if err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	b := &broker{
		faults: []fault{{name: outage, begin: func(context.Context) error { return cluster.Stop(false) }, repair: cluster.Start}},
		close:  func() error { return errors.Join(db.Close(), cluster.Close()) },
	}
	if b.publisher, b.subscriber, err = clients(db); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func openSQLv3(ctx context.Context, topic string, logger watermill.LoggerAdapter) (*broker, error) {
	return sqlBroker(ctx, func(db *sql.DB) (message.Publisher, message.Subscriber, error) {
		schema := sqlv3.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }}
		publisher, err := sqlv3.NewPublisher(db, sqlv3.PublisherConfig{SchemaAdapter: schema}, logger)
		if err != nil {
			return nil, nil, err
		}
		subscriber, err := sqlv3.NewSubscriber(db, sqlv3.SubscriberConfig{
			ConsumerGroup: consumer, SchemaAdapter: schema, OffsetsAdapter: sqlv3.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
			PollInterval: sqlInterval, ResendInterval: sqlInterval, RetryInterval: sqlInterval,
		}, logger)
		if err != nil {
			return nil, nil, err
		}
		return publisher, subscriber, subscriber.SubscribeInitialize(topic)
	})
}

func openSQLv4(ctx context.Context, topic string, logger watermill.LoggerAdapter) (*broker, error) {
	return sqlBroker(ctx, func(db *sql.DB) (message.Publisher, message.Subscriber, error) {
		schema := sqlv4.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }}
		publisher, err := sqlv4.NewPublisher(sqlv4.BeginnerFromStdSQL(db), sqlv4.PublisherConfig{SchemaAdapter: schema}, logger)
		if err != nil {
			return nil, nil, err
		}
		subscriber, err := sqlv4.NewSubscriber(sqlv4.BeginnerFromStdSQL(db), sqlv4.SubscriberConfig{
			ConsumerGroup: consumer, SchemaAdapter: schema, OffsetsAdapter: sqlv4.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
			PollInterval: sqlInterval, ResendInterval: sqlInterval, RetryInterval: sqlInterval,
		}, logger)
		if err != nil {
			return nil, nil, err
		}
		return publisher, subscriber, subscriber.SubscribeInitialize(topic)
	})
}
