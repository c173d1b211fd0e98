package relay

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	stockforwarder "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// stockTopic is where Watermill's forwarder keeps messages.
const stockTopic = "forwarder"

// stock drains an outbox of n messages with Watermill's components/forwarder on watermill-sql. A
// batch size of 0 is its default.
func stock(n int, to *sink, batchSize int) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		if err := fillStock(stage.Setup, stockPostgres(batchSize).schema, n); err != nil {
			return err
		}
		return drainStock(ctx, stage, stage.DB, stockPostgres(batchSize), n, to)
	}
}

// stockTables are Watermill's tables on a database.
type stockTables struct {
	schema  wmsql.SchemaAdapter
	offsets wmsql.OffsetsAdapter
}

func stockPostgres(batchSize int) stockTables {
	return stockTables{wmsql.DefaultPostgreSQLSchema{SubscribeBatchSize: batchSize}, wmsql.DefaultPostgreSQLOffsetsAdapter{}}
}

// drainStock drains an outbox of n messages.
func drainStock(ctx context.Context, stage *measure.Stage, db *sql.DB, tables stockTables, n int, to *sink) error {
	if err := stage.Start(ctx); err != nil {
		return err
	}
	fwd, ended, err := startStock(ctx, db, tables, to)
	if err != nil {
		return err
	}
	if err := to.wait(ctx); err != nil {
		return errors.Join(err, fwd.Close())
	}
	return errors.Join(stage.Stop(n), fwd.Close(), <-ended)
}

// fillStock makes the tables and writes n messages in Watermill's envelope.
func fillStock(db *sql.DB, schema wmsql.SchemaAdapter, n int) error {
	publisher, err := newStockPublisher(db, schema)
	if err != nil {
		return err
	}
	err = load.Fill(n, func(batch ...*message.Message) error { return publisher.Publish(load.Topic, batch...) })
	return errors.Join(err, publisher.Close())
}

// newStockPublisher makes its tables when it first publishes.
func newStockPublisher(db *sql.DB, schema wmsql.SchemaAdapter) (message.Publisher, error) {
	return stockPublisherOn(db, wmsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true})
}

// newStockTxPublisher is how Watermill writes in a transaction: by a publisher for each.
func newStockTxPublisher(tx *sql.Tx) (message.Publisher, error) {
	return stockPublisherOn(tx, wmsql.PublisherConfig{SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}})
}

func stockPublisherOn(db wmsql.ContextExecutor, config wmsql.PublisherConfig) (message.Publisher, error) {
	inner, err := wmsql.NewPublisher(db, config, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return stockforwarder.NewPublisher(inner, stockforwarder.PublisherConfig{ForwarderTopic: stockTopic}), nil
}

// startStock starts a forwarder, whose end the channel tells.
func startStock(ctx context.Context, db *sql.DB, tables stockTables, to message.Publisher) (*stockforwarder.Forwarder, <-chan error, error) {
	subscriber, err := wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
		SchemaAdapter:    tables.schema,
		OffsetsAdapter:   tables.offsets,
		InitializeSchema: true,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, nil, err
	}
	fwd, err := stockforwarder.NewForwarder(subscriber, to, watermill.NopLogger{}, stockforwarder.Config{ForwarderTopic: stockTopic})
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(ctx) }()
	return fwd, ended, nil
}
