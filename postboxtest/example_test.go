package postboxtest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/postboxtest"
	"github.com/postbox-go/watermill-postbox/queue"
)

// A test of a service that publishes an event with each order, and reminds its customers an hour
// later.
func Example() {
	testOrders := func(t *testing.T) {
		database := openTestDatabase(t)
		kit := postboxtest.New(t, database)

		placeOrder(t.Context(), database.DB)
		if events := kit.Published("orders"); len(events) != 1 {
			t.Errorf("%d events for one order", len(events))
		}

		kit.Advance(time.Hour)
		reminders := kit.Drain("reminders", queue.Config{}, remind)
		if reminders != 1 {
			t.Errorf("%d reminders", reminders)
		}
	}
	_ = testOrders
}

// What the service does is not the matter here.
func placeOrder(context.Context, *sql.DB) {}
func remind(*message.Message) error       { return nil }
