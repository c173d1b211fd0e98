package docs_test

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"os"
	"time"
	_ "time/tzdata" // for images without time zones

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// The code of the pages that stands in no example, which needs only to compile.
var _ = []any{
	answerDelay, answerWebhook, answerID, answerBatch, answerSchedule, answerLimit, answerLimits, answerPermanent,
	answerOwnTx, answerProbes, answerUniqueKey, answerShard, answerDeployment,
}

func answerDelay(msg *message.Message) {
	delay.Message(msg, delay.For(time.Hour))
}

func answerWebhook(store *inboxstore.Store, r *http.Request, msg *message.Message) (bool, error) {
	fresh, err := store.Defer(r.Context(), "webhooks", inboxstore.Key{Consumer: "webhooks", Topic: "payments", MessageID: r.Header.Get("Idempotency-Key")}, msg)
	return fresh, err
}

func answerID() middleware.InboxConfig {
	return middleware.InboxConfig{
		MessageID: func(msg *message.Message) string { return msg.Metadata.Get("Idempotency-Key") },
	}
}

type answerHandler = func(context.Context, []*message.Message) error

func answerBatch(store *inboxstore.Store, insertAll answerHandler, logger watermill.LoggerAdapter) (*queue.Batch, error) {
	bulk, err := queue.NewBatch(store, "sales", insertAll, queue.BatchConfig{Size: 500, Age: 5 * time.Second}, logger)
	return bulk, err
}

func answerSchedule(store *inboxstore.Store, report answerHandler, logger watermill.LoggerAdapter) (*queue.Batch, error) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		return nil, err
	}
	daily, err := queue.NewBatch(store, "days", report, queue.BatchConfig{Size: 500, Schedule: "0 0 * * *", TimeZone: berlin}, logger)
	return daily, err
}

func answerLimit() queue.Config {
	return queue.Config{
		Limits: postbox.Limits{Total: postbox.Limit{PerSecond: 10}},
	}
}

// ErrNoSuchCustomer is an error of a service.
var ErrNoSuchCustomer = errors.New("no such customer")

func answerPermanent(store *inboxstore.Store, logger watermill.LoggerAdapter) (*middleware.Inbox, error) {
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		MapError: func(_ *message.Message, err error) error {
			if errors.Is(err, ErrNoSuchCustomer) {
				return postbox.Permanent(err)
			}
			return err
		},
	}, logger)
	return inbox, err
}

func answerLimits() queue.Config {
	return queue.Config{
		Limits: postbox.Limits{
			Total: postbox.Limit{PerSecond: 50, MaxConcurrent: 40}, // the whole queue
		},
	}
}

func answerOwnTx(ctx context.Context, db *sql.DB, inbox *middleware.Inbox, msg *message.Message, handler message.HandlerFunc) (bool, error) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	tx, err := db.BeginTx(ctx, nil)
	must(err)
	_, handled := inbox.Process(postbox.ContextWithTx(ctx, tx), msg, handler)
	err = tx.Commit() // also if handled is an error
	must(err)
	return handled == nil, handled
}

func answerProbes(forwarder *forwarder.Forwarder, subscriber *queue.Subscriber, logger watermill.LoggerAdapter) {
	probes := http.NewServeMux()
	probes.Handle("GET /livez", health.Live(forwarder, subscriber))
	probes.Handle("GET /readyz", health.Ready(0, forwarder, subscriber))
	server := &http.Server{Addr: ":8081", Handler: probes, ReadHeaderTimeout: 5 * time.Second}
	go func() { logger.Error("The probes have ended", server.ListenAndServe(), nil) }()
}

func answerUniqueKey(ctx context.Context, db *sql.DB, outbox message.Publisher, payload []byte) error {
	err := postbox.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		// … the writes of your business
		msg := postbox.SkipIfWaiting(message.NewMessage(watermill.NewUUID(), payload), "statement of customer 7")
		msg.SetContext(forwarder.WhenSkipped(ctx, func(skipped *message.Message) {
			// a message with that key waits already, so this one is not stored
		}))
		return outbox.Publish("statements", msg)
	})
	return err
}

func answerShard(key string, servers, lanes int) int {
	shard := postbox.Lane(key, servers*lanes) / lanes
	return shard
}

func answerDeployment(ctx context.Context, db *sql.DB) error {
	database := postbox.Database{DB: db, Dialect: postbox.PostgreSQL, Deployment: os.Getenv("DEPLOYMENT")} // "production", "staging"
	err := postbox.Migrate(ctx, database)
	return err
}
