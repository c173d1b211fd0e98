package command_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestHelp_lists_each_command_whose_answer_can_be_no(t *testing.T) {
	t.Parallel()
	root := command.New(command.Options{})
	listed := strings.Join(strings.Fields(root.Long), " ")
	_, listed, _ = strings.Cut(listed, "the answer is no: ")
	found := 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		if strings.Contains(cmd.Long, "exit code is") {
			found++
			require.Contains(t, listed, strings.TrimPrefix(cmd.CommandPath(), "postbox "))
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(root)
	require.Positive(t, found)
}

// What became of X: one command, wherever it is.
func TestFind_tells_what_has_become_of_a_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(b.queue, draft("m-1", "fraud", "customer-1"))
		b.letter("d-1", "orders", "card declined")
		b.done(99, "m-0", time.Minute)
		require.Contains(t, b.ok("find", "m-1"), "is ready, and waits for its turn or the end of a pause")
		require.Contains(t, b.ok("find", "declined"), "became dead letter 1")
		require.Contains(t, b.ok("find", "m-0"), "published by attempt")
		all := b.ok("find", "customer-1", "-o", "jsonl")
		require.Contains(t, all, `"letter":1`)
		require.Contains(t, all, `"message_id":"m-1"`)
		require.NotContains(t, all, "m-0")
		require.Positive(t, strings.Count(all, "\n"))
		r := b.run("find", "X")
		require.Equal(t, command.ExitFound, r.code)
		require.Contains(t, r.err, "there is no trace of X")
		require.Contains(t, r.err, `The queue "fraud" keeps no history: "postbox set --queue fraud --history 24h"`)
		require.Equal(t, command.ExitUsage, b.run("find").code)
		for i := range 20 {
			database.Exec(t, "INSERT INTO postbox_spools (name) VALUES (?)", fmt.Sprintf("outbox-%02d", i))
		}
		r = b.run("find", "X")
		require.Equal(t, 10, strings.Count(r.err, "keeps no history"))
		require.Contains(t, r.err, "So do ", "the others are counted")
	})
}

// Where only a part was looked at, the command that looks at all of it is named.
func TestFind_says_how_to_look_at_all(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	b.append(b.queue, draft("m-1", "fraud", "customer-1"))
	const columns = "spool, state, lane, available_at, created_at, topic, message_id, metadata"
	for range 14 {
		database.Exec(t, "INSERT INTO postbox_messages ("+columns+") SELECT "+columns+" FROM postbox_messages")
	}
	database.Exec(t, "UPDATE postbox_messages SET message_id = ? WHERE id = (SELECT MAX(id) FROM postbox_messages)", []byte("the last"))
	r := b.run("find", "the last")
	require.Equal(t, command.ExitFound, r.code)
	require.Contains(t, r.err, `"postbox messages list --outbox NAME --message-id 'the last'", or with --queue`)
	require.Contains(t, b.ok("messages", "list", "--queue", "fraud", "--message-id", "the last"), "the last")
}
