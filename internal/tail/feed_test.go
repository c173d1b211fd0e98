package tail_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

func newFeed(limits tail.Limits) *tail.Feed {
	f := tail.NewFeed(limits)
	f.Open(1)
	f.Begin("server")
	return f
}

func message(id int64, payload string) tail.Message {
	return tail.Message{Spool: 1, ID: id, Size: len(payload) + 2, Payload: []byte(payload), Metadata: []byte("{}")}
}

func ids(messages []tail.Message) (ids []int64) {
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestFeed_returns_the_messages_of_its_outbox_in_order(t *testing.T) {
	t.Parallel()
	f := newFeed(tail.Limits{Messages: 10, Inline: 10, Bytes: 100})
	f.Add(message(2, "a"))
	f.Add(tail.Message{Spool: 2, ID: 3})
	f.Add(message(1, "b"))
	messages, server, _ := f.Take()
	require.Equal(t, []int64{2, 1}, ids(messages))
	require.Equal(t, "server", server)
	messages, _, _ = f.Take()
	require.Empty(t, messages)
	select {
	case <-f.Changed():
	default:
		require.Fail(t, "the drainer is not woken")
	}
}

func TestFeed_drops_everything_when_it_is_full(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]tail.Limits{
		"of messages": {Messages: 2, Inline: 10, Bytes: 100},
		"of bytes":    {Messages: 10, Inline: 10, Bytes: 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFeed(limits)
			_, before := f.State()
			for id := range int64(3) {
				f.Add(message(id+1, "x"))
			}
			messages, _, after := f.Take()
			require.Equal(t, []int64{3}, ids(messages), "what was committed before the gap is dropped")
			require.Equal(t, before+1, after)
		})
	}
}

func TestFeed_holds_large_messages_without_their_payload(t *testing.T) {
	t.Parallel()
	f := newFeed(tail.Limits{Messages: 10, Inline: 5, Bytes: 5})
	large := message(1, "12345678")
	f.Add(large)
	f.Add(large)
	messages, _, _ := f.Take()
	require.Len(t, messages, 2)
	require.Nil(t, messages[0].Metadata)
	require.Nil(t, messages[0].Payload)
	require.Equal(t, 10, messages[0].Size)
}

// The receiver reuses its buffer.
func TestFeed_keeps_a_copy_of_the_payload(t *testing.T) {
	t.Parallel()
	f := newFeed(tail.Limits{Messages: 10, Inline: 10, Bytes: 100})
	m := message(1, "abc")
	f.Add(m)
	copy(m.Payload, "xyz")
	copy(m.Metadata, "??")
	messages, _, _ := f.Take()
	require.Equal(t, "abc", string(messages[0].Payload))
	require.Equal(t, "{}", string(messages[0].Metadata))
}

func TestFeed_counts_the_beginning_and_the_end_of_a_log_as_gaps(t *testing.T) {
	t.Parallel()
	f := newFeed(tail.Limits{Messages: 10, Inline: 10, Bytes: 100})
	_, first := f.State()
	f.Add(message(1, "a"))
	f.End()
	server, second := f.State()
	require.Empty(t, server)
	require.Greater(t, second, first)
	messages, _, _ := f.Take()
	require.Empty(t, messages)
	f.Begin("another")
	server, third := f.State()
	require.Equal(t, "another", server)
	require.Greater(t, third, second)
	f.Open(1) // the same outbox
	_, fourth := f.State()
	require.Equal(t, third, fourth)
	f.Open(2) // a restored database has it under another id
	_, fifth := f.State()
	require.Greater(t, fifth, fourth)
}
