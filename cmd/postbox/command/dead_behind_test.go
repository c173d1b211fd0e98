package command_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The commands say before they requeue after how many messages of its key a letter comes.
func TestRequeue_says_after_how_many_messages_a_letter_comes(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.letter("d-1", "orders", "declined")
	b.letter("d-2", "orders", "declined")
	b.append(b.outbox, draft("m-1", "orders", "customer-1"), draft("m-2", "orders", "customer-1"))
	require.Contains(t, b.answer("n\n", "dead requeue --topic orders").err, "Requeue 2 dead letters? Each goes behind the messages of its key that wait now. [y/N]")
	require.Contains(t, b.answer("n\n", "dead edit 1 --allow-edit --payload-file "+file(t, "new")).err, "It goes behind 2 messages of its key.\nEdit and requeue dead letter 1")
	require.Contains(t, b.run("dead", "requeue", "1").err, "dead letter 1 goes behind 2 messages of its key")
	require.Contains(t, b.run("dead", "requeue", "2").err, "dead letter 2 goes behind 3 messages of its key")
}
