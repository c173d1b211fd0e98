package tail_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

const table = 4711

// The messages of pgoutput, as PostgreSQL's manual describes them.

func begin(transaction uint32) []byte {
	return binary.BigEndian.AppendUint32(append([]byte{'B'}, make([]byte, 16)...), transaction)
}

func commit(end uint64) []byte {
	data := binary.BigEndian.AppendUint64(append([]byte{'C'}, make([]byte, 9)...), end)
	return append(data, make([]byte, 8)...)
}

func relation(oid uint32, columns ...string) []byte {
	data := binary.BigEndian.AppendUint32([]byte{'R'}, oid)
	data = append(data, "public\x00postbox_messages\x00d"...)
	data = binary.BigEndian.AppendUint16(data, uint16(len(columns))) //nolint:gosec // few
	for _, name := range columns {
		data = append(append(append(data, 0), name...), 0)
		data = append(data, make([]byte, 8)...)
	}
	return data
}

func insert(oid uint32, kind byte, values ...[]byte) []byte {
	data := append(binary.BigEndian.AppendUint32([]byte{'I'}, oid), 'N')
	data = binary.BigEndian.AppendUint16(data, uint16(len(values))) //nolint:gosec // few
	for _, value := range values {
		if value == nil {
			data = append(data, 'n')
			continue
		}
		data = binary.BigEndian.AppendUint32(append(data, kind), uint32(len(value))) //nolint:gosec // short
		data = append(data, value...)
	}
	return data
}

var columns = []string{
	"id", "key_hash", "available_at", "created_at", "spool", "attempts", "starts", "state", "lane", "topic", "message_id", "ordering_key", "payload", "metadata",
}

func texts(values ...string) (out [][]byte) {
	for _, value := range values {
		out = append(out, []byte(value))
	}
	return out
}

func textRow() [][]byte {
	return texts("12", "-5", "0", "1700000000000000", "3", "0", "0", "0", "7", "orders", `\x6964`, `\x6b6579`, `\x00ff`, `\x7b7d`)
}

func binaryRow() [][]byte {
	number := binary.BigEndian.AppendUint64
	four := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	two := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	return [][]byte{
		number(nil, 12), number(nil, ^uint64(4)), number(nil, 0), number(nil, 1700000000000000), four(3), four(0), two(0), two(0), two(7),
		[]byte("orders"), []byte("id"), []byte("key"),
		{0, 0xff},
		[]byte("{}"),
	}
}

func decode(t *testing.T, d *tail.Decoder, data []byte) (tail.Event, tail.Message, uint64) {
	t.Helper()
	event, m, end, err := d.Decode(data)
	require.NoError(t, err)
	return event, m, end
}

func TestDecoder_reads_inserted_messages_in_both_forms(t *testing.T) {
	t.Parallel()
	for kind, row := range map[byte][][]byte{'t': textRow(), 'b': binaryRow()} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			d := tail.NewDecoder(table)
			decode(t, d, begin(99))
			require.True(t, d.Within())
			decode(t, d, relation(table, columns...))
			event, m, _ := decode(t, d, insert(table, kind, row...))
			require.Equal(t, tail.Insert, event)
			require.Equal(t, tail.Message{
				Transaction: 99, Spool: 3, ID: 12, CreatedAt: 1700000000000000, Lane: 7, HasKey: true, KeyHash: -5,
				Topic: "orders", MessageID: "id", Key: "key", Size: 4, Payload: []byte{0, 0xff}, Metadata: []byte("{}"),
			}, m)
			event, _, end := decode(t, d, commit(1234))
			require.Equal(t, tail.Commit, event)
			require.Equal(t, uint64(1234), end)
			require.False(t, d.Within())
		})
	}
}

func TestDecoder_reads_a_message_without_a_key(t *testing.T) {
	t.Parallel()
	d, row := tail.NewDecoder(table), textRow()
	row[1], row[11] = nil, nil
	decode(t, d, relation(table, columns...))
	_, m, _ := decode(t, d, insert(table, 't', row...))
	require.False(t, m.HasKey)
	require.Empty(t, m.Key)
}

func TestDecoder_leaves_out_what_is_no_new_message(t *testing.T) {
	t.Parallel()
	d := tail.NewDecoder(table)
	decode(t, d, relation(table, columns...))
	decode(t, d, relation(1, "n"))
	for name, data := range map[string][]byte{
		"of another table": insert(1, 't', []byte("1")),
		"a truncation":     {'T', 0},
		"an origin":        {'O', 0},
		"a type":           {'Y', 0},
	} {
		event, _, _ := decode(t, d, data)
		require.Equal(t, tail.Other, event, name)
	}
	waiting := textRow()
	waiting[7] = []byte("1")
	event, _, _ := decode(t, d, insert(table, 't', waiting...))
	require.Equal(t, tail.Other, event, "a message that waits is no ready one")

	failed := textRow()
	failed[5] = []byte("2")
	event, m, _ := decode(t, d, insert(table, 't', failed...))
	require.Equal(t, tail.Insert, event)
	require.Nil(t, m.Metadata, "a message that has had attempts is left to the poll")
}

// A migration of a later version may add columns, and in another order.
func TestDecoder_finds_columns_by_their_names(t *testing.T) {
	t.Parallel()
	d := tail.NewDecoder(table)
	names := append(slices.Clone(columns), "new")
	slices.Reverse(names)
	row := append(textRow(), []byte("value"))
	slices.Reverse(row)
	decode(t, d, relation(table, names...))
	_, m, _ := decode(t, d, insert(table, 't', row...))
	require.Equal(t, int64(12), m.ID)
	require.Equal(t, "orders", m.Topic)
}

func TestDecoder_tells_that_the_table_is_described(t *testing.T) {
	t.Parallel()
	d := tail.NewDecoder(table)
	event, _, _ := decode(t, d, relation(table, columns...))
	require.Equal(t, tail.Described, event)
	event, _, _ = decode(t, d, relation(1, "n"))
	require.Equal(t, tail.Other, event, "it is another table")
}

func TestDecoder_refuses_what_it_cannot_read(t *testing.T) {
	t.Parallel()
	known := func() *tail.Decoder {
		d := tail.NewDecoder(table)
		decode(t, d, relation(table, columns...))
		return d
	}
	wrong := textRow()
	wrong[0] = []byte("twelve")
	noHex := textRow()
	noHex[12] = []byte("abc")
	whole := insert(table, 't', textRow()...)
	for name, data := range map[string][]byte{
		"nothing":        {},
		"a short begin":  begin(1)[:10],
		"a short commit": commit(1)[:5],
		"a short row":    whole[:len(whole)-3],
		"fewer columns":  insert(table, 't', texts("1")...),
		"a lost column":  relation(table, "id", "spool"),
		"a short table":  relation(table, columns...)[:30],
		"no number":      insert(table, 't', wrong...),
		"no bytea":       insert(table, 't', noHex...),
	} {
		_, _, _, err := known().Decode(data)
		require.Error(t, err, name)
	}
	_, _, _, err := tail.NewDecoder(table).Decode(whole)
	require.Error(t, err, "before the columns are known")
}

func FuzzDecoder(f *testing.F) {
	f.Add(begin(1))
	f.Add(commit(1))
	f.Add(relation(table, columns...))
	f.Add(insert(table, 't', textRow()...))
	f.Add(insert(table, 'b', binaryRow()...))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := tail.NewDecoder(table)
		_, _, _, err := d.Decode(relation(table, columns...))
		require.NoError(t, err)
		event, m, _, err := d.Decode(data)
		if err == nil && event == tail.Insert {
			require.NotZero(t, m.ID)
			require.LessOrEqual(t, m.Size, 2*len(data))
		}
	})
}
