package drain

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// newOutbox returns a spool in the database, whose tables it makes.
func newOutbox(t *testing.T, database *testdb.Database) *spool.Spool {
	t.Helper()
	database.Migrate(t)
	statements, err := spool.StatementsIn(database.Postbox())
	require.NoError(t, err)
	return spool.New(statements, "outbox")
}

// keysOf returns so many keys of a lane.
func keysOf(lane, n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		if key := strconv.Itoa(i); spool.LaneOf(keyhash.Of(key)) == lane {
			keys = append(keys, key)
		}
	}
	return keys
}

// newStepped returns a drainer that a test takes through its steps, and a function that ends it.
func newStepped(db *sql.DB, own *spool.Spool, page int) (d *Drainer, end func()) {
	d = New(db, own, everything{}, Config{
		Identity: Identity{Holder: "one"},
		Amounts:  Amounts{PageSize: page, InlineBytes: InlineBytes, BatchSize: 1, Workers: 1},
		Times:    Times{PollMin: time.Millisecond, PollMax: time.Second, Lease: time.Minute, Renew: time.Minute},
	}, watermill.NopLogger{})
	return d, func() {
		d.scheduler.Stop()
		d.workers.running.Wait()
		d.settle.running.Wait() // it needs the prepared statements
		d.prepared.Close()
	}
}

// settleUnsettled settles what has ended, except for messages that are simply done.
func (d *Drainer) settleUnsettled(ctx context.Context) error {
	start := d.settle.start
	d.settle.start = func(work func()) { work() }
	defer func() { d.settle.start = start }()
	for d.settle.settlePartBeside(ctx) {
		if err := d.settle.takeEnded(ctx); err != nil {
			return err
		}
	}
	return nil
}

// beginUnsettled begins to settle a part of what has ended. What it returns lets the part end.
func (d *Drainer) beginUnsettled(ctx context.Context) (end func() error) {
	start := d.settle.start
	var work func()
	d.settle.start = func(begun func()) { work = begun }
	d.settle.settlePartBeside(ctx)
	d.settle.start = start
	return func() error {
		work()
		return d.settle.takeEnded(ctx)
	}
}

// everything is a handler that leaves out no topic.
type everything struct{ Handler }

func (everything) Excluded() []string { return nil }

// conflictOn lets each such change of such a row of a table conflict, for example UPDATE ON
// postbox_lanes. What it returns ends that.
func conflictOn(t *testing.T, database *testdb.Database, change, which string) (end func()) {
	t.Helper()
	_, table, _ := strings.Cut(change, " ON ")
	name := "refuse_" + table
	if database.Dialect != postbox.PostgreSQL {
		database.Exec(t, "CREATE TRIGGER "+name+" BEFORE "+change+" FOR EACH ROW IF "+which+" THEN "+
			"SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Konflikt'; END IF")
		return func() { database.Exec(t, "DROP TRIGGER "+name) }
	}
	database.Exec(t, "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'Konflikt' USING ERRCODE = '40001'; END $$")
	database.Exec(t, "CREATE TRIGGER "+name+" BEFORE "+change+" FOR EACH ROW WHEN ("+which+") EXECUTE FUNCTION refuse()")
	return func() { database.Exec(t, "DROP TRIGGER "+name+" ON "+table) }
}

// stored is a message as a drainer reads it. No key is 0.
func stored(id, key int64) *spool.Message {
	return &spool.Message{Ref: dialect.Ref{ID: id}, Topic: "a", HasKey: key != 0, Key: strconv.FormatInt(key, 10), KeyHash: key}
}

func one(verdict spool.Verdict) []spool.Outcome { return []spool.Outcome{{Verdict: verdict}} }
