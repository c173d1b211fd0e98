package forwarder_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// lenient makes MySQL and MariaDB cut off what is too long for a column, and report a warning only.
func lenient(t *testing.T, database *testdb.Database) *testdb.Database {
	t.Helper()
	database.Migrate(t)
	if database.Dialect == postbox.MySQL {
		config, err := mysql.ParseDSN(database.DSN)
		require.NoError(t, err)
		config.Params = map[string]string{"sql_mode": "''"}
		database.DSN = config.FormatDSN()
		database.DB = database.Open(t)
	}
	return database
}

// longest is what an id and an ordering key may have.
const longest = 65_535

func TestPublisher_refuses_values_that_not_every_database_can_store(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		lenient(t, database)
		publisher := publisherFor(t, database, nil)
		for name, test := range map[string]struct {
			topic string
			msg   *message.Message
			want  string
		}{
			"id":                   {"topic", newMessage(strings.Repeat("i", longest+1), ""), "65536 bytes, the limit is 65535: give the message a shorter one"},
			"key":                  {"topic", newMessage("1", strings.Repeat("k", longest+1)), "65536 bytes, the limit is 65535: use a shorter one"},
			"topic":                {strings.Repeat("t", 256), newMessage("1", ""), "256 bytes, the limit is 255: use a shorter name"},
			"topic and last space": {"topic ", newMessage("1", ""), "ends with a space"},
			"topic that is none":   {"to\x00pic", newMessage("1", ""), "NUL"},
		} {
			require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
				fine := newMessage("fine", "")
				fine.SetContext(ctx)
				test.msg.SetContext(ctx)
				err := publisher.Publish(test.topic, fine, test.msg)
				var permanent *verdict.PermanentError
				require.ErrorAs(t, err, &permanent, name)
				require.ErrorContains(t, err, test.want, name)
				require.Less(t, len(err.Error()), 1000, "it quotes no long text")
				return nil
			}))
		}
		require.Zero(t, pending(t, database), "nothing is stored, also where the user commits all the same")

		id, key, topic := strings.Repeat("i", longest), strings.Repeat("k", longest), strings.Repeat("t", 255)
		inTx(t, database.DB, publisher, topic, newMessage(id, key))
		to := &broker{}
		run(t, forwarderFor(t, database, to, nil))
		eventually(t, func() bool { return len(to.all()) == 1 }, "what is as long as it may be is published")
		got := to.all()[0]
		require.True(t, got.topic == topic && got.message.UUID == id && got.message.Metadata.Get(postbox.MetadataOrderingKey) == key, "it is whole")
	})
}

// MySQL and MariaDB take the two names for the same, so the messages of one outbox would go out of
// the other.
func TestOutbox_name_that_ends_with_a_space_is_refused(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	_, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{Outbox: "ob "}, nil)
	require.ErrorContains(t, err, "does not end with a space")
	_, err = forwarder.New(database.Postbox(), &broker{}, forwarder.Config{Outbox: "ob "}, nil)
	require.ErrorContains(t, err, "does not end with a space")
}
