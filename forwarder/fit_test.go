package forwarder_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// It would say for ever that it cannot reach its database.
func TestForwarder_names_the_right_dialect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		for _, dialect := range []postbox.Dialect{postbox.PostgreSQL, postbox.MySQL, postbox.SQLite} {
			if dialect == database.Dialect {
				continue
			}
			_, err := forwarder.New(database.DB, &broker{}, forwarder.Config{Dialect: dialect}, nil)
			require.ErrorContains(t, err, "set Dialect to postbox.")
			_, err = forwarder.NewPublisher(database.DB, forwarder.PublisherConfig{Dialect: dialect}, nil)
			require.ErrorContains(t, err, "set Dialect to postbox.")

			fwd, err := forwarder.New(database.OpenWrapped(t), &broker{}, forwarder.Config{Dialect: dialect}, nil)
			require.NoError(t, err, "the driver is not known")
			require.ErrorContains(t, fwd.Run(t.Context()), "set Dialect to postbox.")
		}
	})
}

func TestForwarder_G1_refuses_sessions_that_read_what_may_be_rolled_back(t *testing.T) {
	t.Parallel()
	refusesSessions(t, "tx_isolation=%27READ-UNCOMMITTED%27", "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED", "READ UNCOMMITTED")
}

func TestForwarder_G2_refuses_sessions_that_do_not_commit_by_themselves(t *testing.T) {
	t.Parallel()
	refusesSessions(t, "autocommit=0", "SET SESSION autocommit = 0", "autocommit = 0")
}

// refusesSessions wants an error at the start, and where a session is changed while the forwarder runs.
func refusesSessions(t *testing.T, options, change, want string) {
	t.Helper()
	database := testdb.MySQL(t).Migrate(t)
	fwd, err := forwarder.New(database.OpenWith(t, options), &broker{}, forwarder.Config{Dialect: postbox.MySQL}, nil)
	require.NoError(t, err)
	require.ErrorContains(t, fwd.Run(t.Context()), want)

	db := database.Open(t)
	db.SetMaxOpenConns(1)
	fwd, err = forwarder.New(db, &broker{}, forwarder.Config{Dialect: postbox.MySQL}, watermill.NewStdLogger(true, false))
	require.NoError(t, err)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- fwd.Run(ctx) }()
	<-fwd.Running()
	_, err = db.ExecContext(t.Context(), change)
	require.NoError(t, err)
	require.ErrorContains(t, <-ended, want)
}

// Each session takes so many ids in advance, so a message that is written later may have a lower one.
func TestForwarder_G3_refuses_a_sequence_that_gives_ids_in_advance(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t).Migrate(t)
	database.Exec(t, "ALTER SEQUENCE postbox_messages_id_seq CACHE 20")
	fwd, err := forwarder.New(database.DB, &broker{}, forwarder.Config{Dialect: postbox.PostgreSQL}, nil)
	require.NoError(t, err)
	require.ErrorContains(t, fwd.Run(t.Context()), "ALTER SEQUENCE postbox_messages_id_seq CACHE 1")
	database.Exec(t, "ALTER SEQUENCE postbox_messages_id_seq CACHE 1")
	fwd = forwarderFor(t, database, &broker{}, nil)
	run(t, fwd)
	<-fwd.Running()
}
