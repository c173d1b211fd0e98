package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// tailRounds are few, since the contenders lie far apart.
const tailRounds = 2

// apart is a forwarder beside a publisher that it does not hear, as if they were in two processes:
// commits of its own process would wake it without a poll.
type apart struct {
	*forwarder.Forwarder

	ended     <-chan error
	publisher *forwarder.Publisher
}

// startApart makes the tables and starts both. The forwarder tails the log, or polls.
func startApart(ctx context.Context, stage *measure.Stage, to message.Publisher, tails bool, config forwarder.Config) (*apart, error) {
	setup := postbox.Database{DB: stage.Setup, Dialect: postbox.PostgreSQL}
	if err := postbox.Migrate(ctx, setup); err != nil {
		return nil, err
	}
	a := &apart{}
	var err error
	if tails {
		if err := pgtail.Setup(ctx, setup, ""); err != nil {
			return nil, err
		}
		if config.Tail, err = pgtail.New(pgtail.Config{DSN: stage.DSN, Required: true}); err != nil {
			return nil, err
		}
	}
	// The name of the schema makes the tables those of another publisher, for wake-ups within a
	// process.
	named := postbox.Database{DB: stage.DB, Dialect: postbox.PostgreSQL, Schema: stage.Schema()}
	if a.publisher, err = forwarder.NewPublisher(named, forwarder.PublisherConfig{DisableNotify: true}, nil); err != nil {
		return nil, err
	}
	if a.Forwarder, a.ended, err = startOurs(ctx, stage.DB, to, config); err != nil {
		return nil, err
	}
	<-a.Running()
	if tails {
		err = waitStreaming(ctx, stage.Setup)
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// send commits messages in a transaction, and then tells.
func (a *apart) send(ctx context.Context, db *sql.DB, topic string, committed func(), messages ...*message.Message) error {
	return postbox.InTx(ctx, db, func(ctx context.Context, _ *sql.Tx) error {
		postbox.AfterCommit(ctx, committed)
		for _, msg := range messages {
			msg.SetContext(ctx)
		}
		return a.publisher.Publish(topic, messages...)
	})
}

func (a *apart) close() error {
	return errors.Join(a.publisher.Close(), a.Close(), <-a.ended)
}

// streamingTimeout is what a server may need to make a slot.
const streamingTimeout = 30 * time.Second

// waitStreaming waits until the server sends its log.
func waitStreaming(ctx context.Context, db *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, streamingTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		if err := db.QueryRowContext(ctx, countStreaming).Scan(&n); err != nil {
			return fmt.Errorf("wait until the log is sent: %w", err)
		}
		if n > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the server does not send its log")
		case <-tick.C:
		}
	}
}
