package forwarder_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestForwarder_wakes_up_after_a_commit_in_the_same_process(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	to := &broker{}
	fwd := forwarderFor(t, database, to, func(c *forwarder.Config) { c.PollMin, c.PollMax = time.Hour, time.Hour })
	run(t, fwd)
	<-fwd.Running()
	publisher := publisherFor(t, database, nil)
	for i := range 10 {
		inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprint(i), ""))
		eventually(t, func() bool { return len(to.ids()) == i+1 }, "without polling")
	}
}

func TestForwarder_wakes_up_after_a_commit_in_another_process(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t).Migrate(t)
	to := &broker{}
	fwd := forwarderFor(t, database, to, func(c *forwarder.Config) {
		c.PollMin, c.PollMax, c.ListenDSN = time.Hour, time.Hour, database.DSN
	})
	run(t, fwd)
	<-fwd.Running()
	// Another process gets no wake-up of ours: it announces on the channel.
	inTx(t, database.Open(t), publisherFor(t, database, nil), "topic", newMessage("first", ""))
	eventually(t, func() bool { return len(to.ids()) == 1 }, "by the wake-up or LISTEN")
	database.Exec(t, `INSERT INTO postbox_messages (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata)
		SELECT spool, lane, 0, 0, 0, 'topic', 'second', 'x', '{}' FROM postbox_lanes LIMIT 1`)
	eventually(t, func() bool {
		database.Exec(t, "SELECT pg_notify('postbox_outbox', '')")
		return len(to.ids()) == 2
	}, "by LISTEN")
}
