package pubsub_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// theLog is how forwarders read the log of the database. nil reads nothing.
type theLog struct {
	tail  forwarder.Tail
	taken atomic.Int64 // messages that came through the log
}

// follow lets a forwarder read the log.
func (l *theLog) follow(config *forwarder.Config) {
	if l != nil {
		config.Tail = l.tail
	}
}

// measured returns the database for a forwarder. Its recorder counts the messages that the
// forwarder takes from the log.
func (l *theLog) measured(database *testdb.Database) postbox.Database {
	measured := database.Postbox()
	if l != nil {
		measured.Metrics = instruments.RecorderFunc(func(i *metrics.Instrument, value float64, _ ...string) {
			if i == instruments.LogTaken {
				l.taken.Add(int64(value))
			}
		})
	}
	return measured
}

// All forwarders of a test share one reader of the log, as those of a process do.
func TestPubSub_G2_through_the_log(t *testing.T) {
	t.Parallel()
	database := testdb.PostgresLog(t).Migrate(t)
	log := announcedRows(t, database)
	t.Cleanup(func() { require.Positive(t, log.taken.Load(), "messages came through the log") }) // after the suite, whose tests are parallel
	testPubSub(t, chain{database: database, destination: newGoChannels(), log: log}, tests.Features{
		ExactlyOnceDelivery:              true,
		ForceShort:                       true,
		Persistent:                       true,
		NewSubscriberReceivesOldMessages: true,
		RequireSingleInstance:            true,
	})
}

// announcedRows has a publication of its own, since these have one name space for all schemas.
func announcedRows(t *testing.T, database *testdb.Database) *theLog {
	t.Helper()
	var publication string
	require.NoError(t, database.DB.QueryRowContext(t.Context(), "SELECT current_schema() || '_tail'").Scan(&publication))
	require.NoError(t, pgtail.Setup(t.Context(), database.Postbox(), publication))
	t.Cleanup(func() { require.NoError(t, pgtail.Remove(context.Background(), database.Postbox(), publication)) })
	reader, err := pgtail.New(pgtail.Config{DSN: database.DSN, Publication: publication, Required: true})
	require.NoError(t, err)
	return &theLog{tail: reader}
}
