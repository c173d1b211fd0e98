package relay

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// ours fills an outbox with n messages and drains it with a forwarder.
func ours(n int, to *sink, config forwarder.Config) measure.Run {
	return oursShaped(load.Usual(), n, to, config)
}

// oursShaped does so with messages of a shape.
func oursShaped(shape load.Shape, n int, to *sink, config forwarder.Config) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		if err := fillShaped(ctx, stage.Setup, shape, n); err != nil {
			return err
		}
		return drainOurs(to, config)(ctx, stage)
	}
}

// drainOurs drains an outbox with a forwarder, until the sink has got what it wants.
func drainOurs(to *sink, config forwarder.Config) measure.Run {
	return drainDescribed(load.Unmeasured, to, config)
}

// drainDescribed does so with another description of the database.
func drainDescribed(describe load.Describe, to *sink, config forwarder.Config) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		database, err := describe(stage.DB)
		if err != nil {
			return err
		}
		return drainOn(ctx, stage, database, to, config)
	}
}

// drainOn does so on any database.
func drainOn(ctx context.Context, stage *measure.Stage, database postbox.Database, to *sink, config forwarder.Config) error {
	if err := stage.Start(ctx); err != nil {
		return err
	}
	fwd, ended, err := startOn(ctx, database, to, config)
	if err != nil {
		return err
	}
	if err := to.wait(ctx); err != nil {
		return errors.Join(err, fwd.Close())
	}
	return errors.Join(stage.Stop(int(to.want)), fwd.Close(), <-ended)
}

// fillOurs makes the tables and writes n messages.
func fillOurs(ctx context.Context, db *sql.DB, n int) error {
	return fillShaped(ctx, db, load.Usual(), n)
}

// fillShaped does so with messages of a shape.
func fillShaped(ctx context.Context, db *sql.DB, shape load.Shape, n int) error {
	return fillOn(ctx, postbox.Database{DB: db, Dialect: postbox.PostgreSQL}, shape, n)
}

// fillOn does so on any database.
func fillOn(ctx context.Context, database postbox.Database, shape load.Shape, n int) error {
	if err := postbox.Migrate(ctx, database); err != nil {
		return err
	}
	publisher, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{
		AllowAutocommit: true, DisableNotify: true,
	}, nil)
	if err != nil {
		return err
	}
	err = shape.Fill(n, func(batch ...*message.Message) error { return publisher.Publish(load.Topic, batch...) })
	return errors.Join(err, publisher.Close())
}

// startOurs starts a forwarder on PostgreSQL, whose end the channel tells.
func startOurs(ctx context.Context, db *sql.DB, to message.Publisher, config forwarder.Config) (*forwarder.Forwarder, <-chan error, error) {
	return startOn(ctx, postbox.Database{DB: db, Dialect: postbox.PostgreSQL}, to, config)
}

// startOn starts a forwarder, whose end the channel tells.
func startOn(
	ctx context.Context, database postbox.Database, to message.Publisher, config forwarder.Config,
) (*forwarder.Forwarder, <-chan error, error) {
	fwd, err := forwarder.New(database, to, config, nil)
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(ctx) }()
	return fwd, ended, nil
}
