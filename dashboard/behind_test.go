package dashboard_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Each page that leads to a requeue says before it after how many messages of the key the letter
// comes.
func TestLetter_says_before_a_requeue_after_how_many_messages_of_its_key_it_comes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Die("orders", "no", keyed("m-1", "customer-1"))
		letter := b.letters(admin.Filter{})[0].ID
		require.Contains(t, b.page(letterAt("edit", letter)).text(), "It goes to the end of its key. It cannot go back to its place")
		b.Publish("orders", keyed("m-2", "customer-1"), keyed("m-3", "customer-1"), keyed("m-4", "customer-2"))
		require.Contains(t, b.page(letterAt("edit", letter)).text(), "It goes behind 2 messages of its key. It cannot go back to its place")
		question := b.linkTo(b.page(letterAt("letter", letter)), "count them")
		require.Contains(t, question, "outbox=outbox", "letters of others may have the same id and key")
		ask := b.page(question)
		require.Contains(t, ask.text(), "1 dead letter matches this filter")
		require.Contains(t, ask.text(), "key customer-1 , behind 2 messages of its key")
		require.NotContains(t, b.page("bulk?do=delete&topic=orders").text(), "behind")
		b.do(letterAt("resolve", letter), url.Values{"reason": {"paid"}})
		require.NotContains(t, b.page(letterAt("letter", letter)).text(), "behind")
	})
}

func keyed(id, key string) *message.Message {
	msg := message.NewMessage(id, []byte("payload of "+id))
	msg.Metadata.Set("partition_key", key)
	return msg
}
