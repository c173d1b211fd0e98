package forwarder_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// evilErrors are errors of which a method panics, as those of nil pointers do.
var evilErrors = map[string]error{
	"evil 1": (*net.OpError)(nil),
	"evil 2": (*fs.PathError)(nil),
	"evil 3": fmt.Errorf("wrapped: %w", (*net.OpError)(nil)),
	"evil 4": errors.Join(errBroker, (*fs.PathError)(nil)),
	"evil 5": (*verdict.RetryAfterError)(nil),
	"evil 6": &verdict.PermanentError{},
	"evil 7": picky{},
	"evil 8": fmt.Errorf("wrapped: %w", picky{}),
}

// picky is an error that can be compared with errors of its own type alone.
type picky struct{}

func (picky) Error() string { return "picky" }

func (picky) Is(err error) bool { return err.(picky) == picky{} } //nolint:forcetypeassert // it panics

func TestForwarder_G7_an_error_that_panics_counts_for_its_message_alone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		for outbox, batch := range map[string]int{"one by one": 1, "in batches": 100} {
			to := &broker{fail: func(_ string, msg *message.Message) error { return evilErrors[msg.UUID] }}
			publisher := publisherFor(t, database, func(c *forwarder.PublisherConfig) { c.Outbox = outbox })
			run(t, forwarderFor(t, database, to, func(c *forwarder.Config) { c.Outbox, c.BatchSize, c.Retry.Attempts = outbox, batch, 3 }))
			want := dead(t, database) + len(evilErrors)
			for id := range evilErrors {
				inTx(t, database.DB, publisher, "topic", newMessage(id, ""), newMessage("innocent beside "+id, ""))
			}
			for n := 0; dead(t, database) < want; n++ { // other messages show that the broker works
				id := fmt.Sprint("innocent ", n)
				inTx(t, database.DB, publisher, "topic", newMessage(id, ""))
				eventually(t, func() bool { return slices.Contains(to.ids(), id) }, id+" is published")
			}
			eventually(t, func() bool { return pending(t, database) == 0 }, "all are settled")
			require.Equal(t, want, dead(t, database))
			for id := range evilErrors {
				require.Contains(t, to.ids(), "innocent beside "+id)
			}
		}
	})
}
