package tail_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

var committed = time.UnixMicro(1_800_000_000_000_000)

func TestEmitted_comes_back_as_it_was(t *testing.T) {
	t.Parallel()
	due := time.UnixMicro(1_900_000_000_000_001)
	in := tail.Emitted{Outbox: "outbox", Lanes: 256, Drafts: []spool.Draft{
		{Topic: "orders", MessageID: "1", Key: "key", Payload: []byte("payload"), Metadata: map[string]string{"a": "\xff\x00"}},
		{Topic: "orders", MessageID: "", Payload: []byte{}, Metadata: map[string]string{}, Delay: time.Minute},
		{Topic: "orders", MessageID: "3", Payload: []byte{}, Metadata: map[string]string{}, Due: due},
	}}
	pieces, err := in.Encode()
	require.NoError(t, err)
	require.Len(t, pieces, 1)
	out, err := tail.DecodeEmitted(pieces[0], committed)
	require.NoError(t, err)
	in.Drafts[1].Delay, in.Drafts[1].Due = 0, committed.Add(time.Minute)
	require.Equal(t, in, out)
}

func TestEmitted_large_messages_go_in_several_pieces(t *testing.T) {
	t.Parallel()
	in := tail.Emitted{Outbox: "outbox", Lanes: 1, Drafts: make([]spool.Draft, 3)}
	for i := range in.Drafts {
		in.Drafts[i] = spool.Draft{Topic: "orders", Payload: make([]byte, tail.MaxEmitted/2), Metadata: map[string]string{}}
	}
	pieces, err := in.Encode()
	require.NoError(t, err)
	require.Len(t, pieces, 2)
	var drafts []spool.Draft
	for _, piece := range pieces {
		out, err := tail.DecodeEmitted(piece, committed)
		require.NoError(t, err)
		drafts = append(drafts, out.Drafts...)
	}
	require.Equal(t, in.Drafts, drafts)
}

func TestDecodeEmitted_finds_no_message_in_a_mark(t *testing.T) {
	t.Parallel()
	out, err := tail.DecodeEmitted(dialect.LogMark, committed)
	require.NoError(t, err)
	require.Empty(t, out.Drafts)
}

func TestDecodeEmitted_refuses_what_it_cannot_read(t *testing.T) {
	t.Parallel()
	pieces, err := tail.Emitted{Outbox: "outbox", Lanes: 1, Drafts: []spool.Draft{{Topic: "orders"}}}.Encode()
	require.NoError(t, err)
	whole := pieces[0]
	later := append([]byte{2}, whole[1:]...)
	_, err = tail.DecodeEmitted(later, committed)
	require.ErrorIs(t, err, tail.ErrEmittedVersion)
	for n := range whole {
		out, err := tail.DecodeEmitted(whole[:n], committed)
		require.True(t, err != nil || len(out.Drafts) == 0, "cut off after %d bytes", n)
		require.NotErrorIs(t, err, tail.ErrEmittedVersion)
	}
	_, err = tail.DecodeEmitted([]byte(strings.Repeat("\x01", 3)), committed)
	require.Error(t, err)
}

func FuzzDecodeEmitted(f *testing.F) {
	pieces, err := tail.Emitted{Outbox: "outbox", Lanes: 1, Drafts: []spool.Draft{{Topic: "orders", Key: "key"}}}.Encode()
	require.NoError(f, err)
	f.Add(pieces[0])
	f.Fuzz(func(t *testing.T, piece []byte) {
		decoded, err := tail.DecodeEmitted(piece, committed)
		if err != nil || len(decoded.Drafts) == 0 {
			return
		}
		again, err := decoded.Encode()
		require.NoError(t, err)
		var drafts []spool.Draft
		for _, piece := range again {
			out, err := tail.DecodeEmitted(piece, committed)
			require.NoError(t, err)
			drafts = append(drafts, out.Drafts...)
		}
		require.Equal(t, decoded.Drafts, drafts)
	})
}

// logMessage is a message of the log as pgoutput sends it.
func logMessage(flags byte, prefix, content string) []byte {
	data := append([]byte{'M', flags}, make([]byte, 8)...)
	data = append(append(data, prefix...), 0)
	data = binary.BigEndian.AppendUint32(data, uint32(len(content))) //nolint:gosec // short
	return append(data, content...)
}

func TestEmittedDecoder_wants_messages_of_its_table_that_belong_to_a_transaction(t *testing.T) {
	t.Parallel()
	d := tail.NewEmittedDecoder(table)
	decode := func(data []byte) (tail.Event, tail.Piece, uint64) {
		event, piece, end, err := d.Decode(data)
		require.NoError(t, err)
		return event, piece, end
	}
	first := binary.BigEndian.AppendUint64([]byte{'B'}, 77)
	first = binary.BigEndian.AppendUint64(first, uint64(committed.UnixMicro()-tail.MicrosecondsTo2000)) //nolint:gosec // later than 2000
	first = binary.BigEndian.AppendUint32(first, 9)
	event, _, _ := decode(first)
	require.Equal(t, tail.Begin, event)
	require.True(t, d.Within())
	require.EqualValues(t, 77, d.Final())
	event, piece, _ := decode(logMessage(1, "postbox_4711", "content"))
	require.Equal(t, tail.Insert, event)
	require.Equal(t, tail.Piece{Transaction: 9, Committed: committed, Content: []byte("content")}, piece)
	for _, other := range [][]byte{
		logMessage(0, "postbox_4711", "of no transaction"), logMessage(1, "postbox_471", "of another table"), relation(table, columns...),
	} {
		event, _, _ = decode(other)
		require.Equal(t, tail.Other, event)
	}
	event, _, end := decode(commit(99))
	require.Equal(t, tail.Commit, event)
	require.EqualValues(t, 99, end)
	require.False(t, d.Within())
	for n := range first {
		_, _, _, err := d.Decode(first[:n])
		require.Error(t, err, n)
	}
}
