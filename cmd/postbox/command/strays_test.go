package command_test

import (
	"context"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A message whose outbox has no row, such as after a restore, is pending all the same.
func TestDrain_and_check_see_messages_without_an_outbox(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(b.queue, draft("m-1", "fraud", "k"))
		b.append(b.outbox, draft("m-2", "orders", "k"))
		b.database.Exec(t, "UPDATE postbox_messages SET spool = 99 WHERE message_id = ?", []byte("m-1"))
		b.database.Exec(t, "DELETE FROM postbox_messages WHERE message_id = ?", []byte("m-2"))
		for _, args := range [][]string{{"drain", "--timeout", "0s"}, {"check"}} {
			r := b.run(args...)
			require.Equal(t, command.ExitFound, r.code, r.err)
			require.Contains(t, r.out, "missing id 99")
		}
		require.Contains(t, b.ok("drain", "--timeout", "0s", "--outbox", "outbox"), "yes")
		b.ok("check", "--outbox", "outbox")
		require.Equal(t, command.ExitError, b.run("drain", "--outbox", "gone").code)
	})
}

// A message that moves to and fro is never out of sight. Two statements would sooner or later look
// at each place when it is in the other.
func TestDrain_looks_at_all_at_one_moment(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.queue, draft("m-1", "fraud", "k"))
	b.append(b.outbox, draft("m-2", "orders", "k"))
	b.database.Exec(t, "DELETE FROM postbox_messages WHERE message_id = ?", []byte("m-2"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			_, err := b.database.DB.ExecContext(t.Context(), "UPDATE postbox_messages SET spool = (SELECT id FROM postbox_spools s WHERE s.id <> postbox_messages.spool)")
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 100 {
		r := b.run("drain", "--timeout", "0s")
		require.Equal(t, command.ExitFound, r.code, r.out+r.err)
	}
	cancel()
	require.NoError(t, <-done)
}

// JSON replaces what is not UTF-8, so the bytes are there as well.
func TestOutput_keys_and_ids_that_are_no_text(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	const id, key = "\xffid", "\xfekey"
	b.append(b.outbox, draft(id, "orders", key))
	require.NoError(t, b.admin().Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), Key: key}))
	wantID := `"message_id_base64":"` + base64.StdEncoding.EncodeToString([]byte(id)) + `"`
	wantKey := `"key_base64":"` + base64.StdEncoding.EncodeToString([]byte(key)) + `"`
	list := b.ok("messages", "list", "-o", "json")
	require.Contains(t, list, wantID)
	require.Contains(t, list, wantKey)
	require.Contains(t, b.ok("keys", "list", "-o", "json"), wantKey)
	b.ok("messages", "bury", "1", "--reason", "x", "--yes")
	dead := b.ok("dead", "list", "-o", "json")
	require.Contains(t, dead, wantID)
	require.Contains(t, dead, wantKey)
}

// A table must show that a value begins or ends with a blank.
func TestOutput_values_with_blanks_at_their_ends(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	d := draft("m-1", "orders", "")
	d.Metadata = map[string]string{"partition_key": " lead", "note": "trail ", "plain": "two words"}
	b.append(b.outbox, d)
	shown := b.ok("messages", "show", "1")
	require.Contains(t, shown, `  partition_key: " lead"`+"\n")
	require.Contains(t, shown, `  note: "trail "`+"\n")
	require.Contains(t, shown, "  plain: two words\n")
}

// Without a name, resume is about the outbox "outbox".
func TestResume_says_that_it_was_not_paused(t *testing.T) {
	t.Parallel()
	b := shop(t)
	require.Contains(t, b.run("resume").err, "It was not paused")
	require.NotContains(t, b.run("pause").err+b.run("resume").err, "It was not paused")
}

// A time of day that is over is that of tomorrow.
func TestPause_says_for_how_long(t *testing.T) {
	t.Parallel()
	b := shop(t)
	require.Contains(t, b.ok("pause", "--until", "+3h"), ", for 3h0m")
}

// A header alone looks as if the command had failed.
func TestLanes_say_that_no_process_handles_them(t *testing.T) {
	t.Parallel()
	require.Contains(t, shop(t).run("lanes", "--members").err, "No process handles it.")
}

// A key that is written wrongly must not look as if it went on.
func TestKeys_resume_says_that_the_key_was_not_paused(t *testing.T) {
	t.Parallel()
	b := shop(t)
	require.Contains(t, b.run("keys", "resume", "customer-22").err, "was not paused")
	require.Empty(t, b.run("keys", "resume", "customer-2").err)
}

// Requeueing inserts into the messages, which a role may not be allowed. A trigger stands for the
// missing right.
func TestDoctor_tries_to_insert_messages(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	require.Empty(t, b.findings())
	b.database.Exec(t, "CREATE TRIGGER refuse BEFORE INSERT ON postbox_messages BEGIN SELECT RAISE(ABORT, 'refused'); END")
	b.only("rights", b.findings(), "GRANT INSERT ON postbox_messages")
}
