package docs_test

import (
	"context"
	"errors"
	"net/http"
	"time"
	_ "time/tzdata" // for images without time zones

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// The code of docs/questions.md and docs/retries.md, which needs only to compile.
var _ = []any{answerDelay, answerWebhook, answerID, answerBatch, answerSchedule, answerLimit, answerPermanent}

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
