package storetest

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// Handled is a received message that was kept.
type Handled struct {
	Topic, MessageID string
	Payload          []byte
	Metadata         message.Metadata
	// Omitted is the number of bytes of payload and metadata that were not kept.
	Omitted int
	// ReceivedAt is when the call began, and DoneAt when fn had ended.
	ReceivedAt, DoneAt time.Time
}

func received(msg *message.Message) inboxstore.Received {
	return inboxstore.Received{Message: msg, History: time.Hour}
}

// G4: a message is kept with the commit of its claim, once, as it came.
func testHistory(t *testing.T, h Harness) {
	store, ok := h.Store.(middleware.HistoryStore)
	require.True(t, ok, "the store has no OnceReceived")
	msg := newMessage("1", "")
	msg.Payload = []byte(anyBytes)
	msg.Metadata.Set(postbox.MetadataOrderingKey, anyBytes)
	_, err := store.OnceReceived(patient(t), keyOf("1"), received(msg), fail)
	require.ErrorIs(t, err, errFn)
	_, err = store.Once(patient(t), keyOf("not kept"), succeed)
	require.NoError(t, err)
	kept, err := h.History(patient(t), keyOf("1").Consumer)
	require.NoError(t, err)
	require.Empty(t, kept, "of a message that fn did not handle")

	for _, want := range []bool{true, false} {
		fresh, err := store.OnceReceived(patient(t), keyOf("1"), received(msg), succeed)
		require.NoError(t, err)
		require.Equal(t, want, fresh)
	}
	large := received(newMessage("2", ""))
	large.Message.Payload, large.MaxPayload = make([]byte, 1000), 999
	_, err = store.OnceReceived(patient(t), keyOf("2"), large, succeed)
	require.NoError(t, err)

	kept, err = h.History(patient(t), keyOf("1").Consumer)
	require.NoError(t, err)
	require.Len(t, kept, 2)
	for _, m := range kept {
		require.False(t, m.DoneAt.Before(m.ReceivedAt))
		require.Equal(t, keyOf("1").Topic, m.Topic)
	}
	require.Equal(t, []any{"1", []byte(anyBytes), msg.Metadata, 0}, []any{kept[0].MessageID, kept[0].Payload, kept[0].Metadata, kept[0].Omitted})
	require.Equal(t, []any{"2", 0, 1000}, []any{kept[1].MessageID, len(kept[1].Payload), kept[1].Omitted})
}

// G4: messages that come one after the other are kept in that order, whatever the clock of the
// database counts.
func testHistoryInOrder(t *testing.T, h Harness) {
	store, ok := h.Store.(middleware.HistoryStore)
	require.True(t, ok, "the store has no OnceReceived")
	var want, got []string
	for i := range 30 {
		id := strconv.Itoa(i)
		_, err := store.OnceReceived(patient(t), keyOf(id), received(newMessage(id, "")), succeed)
		require.NoError(t, err)
		want = append(want, id)
	}
	kept, err := h.History(patient(t), keyOf("").Consumer)
	require.NoError(t, err)
	for _, m := range kept {
		got = append(got, m.MessageID)
	}
	require.Equal(t, want, got)
}

// G4: however many copies arrive at a time, one is kept.
func testHistoryOfCopies(t *testing.T, h Harness) {
	store, ok := h.Store.(middleware.HistoryStore)
	require.True(t, ok, "the store has no OnceReceived")
	ctx, ended := patient(t), make(chan error, 2*concurrency)
	for i := range cap(ended) {
		id := strconv.Itoa(i % 2)
		go func() {
			_, err := store.OnceReceived(ctx, keyOf(id), received(newMessage(id, "")), succeed)
			ended <- err
		}()
	}
	for range cap(ended) {
		require.NoError(t, receive(t, ended, "a copy"))
	}
	kept, err := h.History(patient(t), keyOf("").Consumer)
	require.NoError(t, err)
	require.Len(t, kept, 2)
	require.NotEqual(t, kept[0].MessageID, kept[1].MessageID)
}
