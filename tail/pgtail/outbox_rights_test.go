package pgtail_test

import (
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// storer makes a role with the rights of a forwarder with the log, and returns its name and its address.
func (w *world) storer() (name, dsn string) {
	w.Helper()
	dsn = w.granted("LOGIN", "forwarder", "forwarder with the log")
	address, err := url.Parse(dsn)
	require.NoError(w, err)
	return address.User.Username(), dsn
}

// withdrawn are the rights without which messages of the log cannot be stored.
var withdrawn = []string{
	"SELECT, UPDATE ON postbox_log_position", "INSERT ON postbox_messages", "INSERT ON postbox_waiting", "USAGE ON SEQUENCE postbox_messages_id_seq",
	"SELECT ON postbox_spools", "INSERT (name, lanes) ON postbox_spools", "SELECT ON postbox_pauses", "SELECT ON postbox_topic_pauses",
}

func TestInspectOutbox_names_each_right_that_the_role_of_a_forwarder_lacks(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	name, _ := w.storer()
	found := func() []pgtail.Finding {
		status, err := pgtail.InspectOutbox(t.Context(), w.Postbox(), pgtail.OutboxConfig{})
		require.NoError(t, err)
		return about(status, pgtail.AboutRole)
	}
	require.Empty(t, found())
	for _, right := range append(withdrawn[1:], "SELECT ON postbox_log_position") {
		w.Exec(t, "REVOKE "+right+" FROM "+name)
		missing := found()
		require.Len(t, missing, 1, right)
		require.True(t, missing[0].Problem)
		require.Contains(t, missing[0].What, "the role "+name+" may not store messages of the log")
		rights, object, _ := strings.Cut(right, " ON ")
		for _, text := range []string{rights, " ON " + object + ` TO "` + name + `"`} {
			require.Contains(t, missing[0].Fix, text, right)
		}
		w.Exec(t, missing[0].Fix)
		require.Empty(t, found(), right)
	}
	w.Exec(t, "REVOKE "+strings.Join(withdrawn[1:3], " FROM "+name+"; REVOKE ")+" FROM "+name)
	missing := found()
	require.Len(t, missing, 1, "all rights of a role are one finding")
	require.Equal(t, 2, strings.Count(missing[0].Fix, "GRANT "))
	w.Exec(t, missing[0].Fix)
	require.Empty(t, found())
}

// A forwarder reads the log, and can store nothing. It tries again and again.
func TestOutbox_says_once_which_right_its_role_lacks(t *testing.T) {
	t.Parallel()
	for _, right := range []string{withdrawn[1], withdrawn[2], withdrawn[3], withdrawn[5]} {
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			w, b := newOutboxWorld(t), &broker{}
			name, dsn := w.storer()
			w.Exec(t, "REVOKE "+right+" FROM "+name)
			reader := w.outboxTail()
			var sessions atomic.Int32
			reader.OnConnect(func() { sessions.Add(1) })
			database := *w.Database
			database.DSN = dsn
			f := (&world{T: t, Database: &database, recorder: w.recorder}).start(b, forwarder.Config{Tail: reader})
			w.eventually(func() bool { return f.log.count("reads messages from the log") == 1 }, "it reads")
			late := keyed("late", "key")
			delay.Message(late, delay.For(time.Millisecond))
			w.emit(late)
			require.NoError(t, w.emitter("of no forwarder").Publish("orders", keyed("stored", "key"))) // so it gets a row
			w.eventually(func() bool { return sessions.Load() >= 5 }, "it tries again and again")
			require.Equal(t, 1, f.log.count("Postbox cannot read messages from the log"), "%v", f.log.all())
			require.Equal(t, 1, f.log.count("reads messages from the log"), "%v", f.log.all())
			rights, object, _ := strings.Cut(right, " ON ")
			require.Equal(t, 1, f.log.count("the role "+name+" may not store messages of the log"))
			require.Equal(t, 1, f.log.count(rights+" ON "+object+` TO "`+name+`"`), "%v", f.log.all())

			w.Exec(t, "GRANT "+right+" TO "+name)
			w.eventually(func() bool { return b.has("late") && w.rows() == 1 }, "it goes on")
			w.eventually(func() bool { return f.log.count("reads messages from the log") == 2 }, "it says so")
			f.stop(t)
		})
	}
}

func TestOutbox_does_not_run_without_the_right_to_store_its_position(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	name, dsn := w.storer()
	w.Exec(t, "REVOKE "+withdrawn[0]+" FROM "+name)
	database := *w.Database
	database.DSN = dsn
	f := (&world{T: t, Database: &database, recorder: w.recorder}).start(&broker{}, forwarder.Config{Tail: w.outboxTail()})
	select {
	case err := <-f.ended:
		require.ErrorContains(t, err, `GRANT SELECT, UPDATE ON postbox_log_position TO "`+name+`"`)
	case <-time.After(patience):
		require.Fail(t, "it runs")
	}
}
