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

var columns = []string{"id", "spool", "lane", "topic", "payload"}

func textRow() [][]byte {
	return [][]byte{[]byte("12"), []byte("3"), []byte("21"), []byte("orders"), nil}
}

func binaryRow() [][]byte {
	id, spool := binary.BigEndian.AppendUint64(nil, 12), binary.BigEndian.AppendUint32(nil, 3)
	return [][]byte{id, spool, binary.BigEndian.AppendUint16(nil, 21), []byte("orders"), nil}
}

func decode(t *testing.T, d *tail.Decoder, data []byte) (tail.Event, tail.Change, uint64) {
	t.Helper()
	event, c, end, err := d.Decode(data)
	require.NoError(t, err)
	return event, c, end
}

func TestDecoder_tells_the_outbox_of_an_inserted_row_in_both_forms(t *testing.T) {
	t.Parallel()
	for kind, row := range map[byte][][]byte{'t': textRow(), 'b': binaryRow()} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			d := tail.NewDecoder(table, table+1, table+2)
			decode(t, d, begin(99))
			require.True(t, d.Within())
			decode(t, d, relation(table, columns...))
			event, c, _ := decode(t, d, insert(table, kind, row...))
			require.Equal(t, tail.Changed, event)
			require.Equal(t, tail.Change{Transaction: 99, Spool: 3, Message: true, Lane: 21}, c)

			decode(t, d, relation(table+1, "spool"))
			_, c, _ = decode(t, d, insert(table+1, kind, row[1]))
			require.Equal(t, tail.Change{Transaction: 99, Spool: 3}, c, "a message that waits")

			decode(t, d, relation(table+2, "id"))
			event, c, _ = decode(t, d, insert(table+2, kind, row[0]))
			require.Equal(t, tail.Changed, event)
			require.Equal(t, tail.Change{Transaction: 99}, c, "an operator has acted")

			event, _, end := decode(t, d, commit(1234))
			require.Equal(t, tail.Committed, event)
			require.Equal(t, uint64(1234), end)
			require.False(t, d.Within())
		})
	}
}

func TestDecoder_leaves_out_what_is_no_change(t *testing.T) {
	t.Parallel()
	d := tail.NewDecoder(table)
	decode(t, d, relation(1, "spool"))
	for name, data := range map[string][]byte{
		"of another table": insert(1, 't', []byte("1")),
		"a truncation":     {'T', 0},
		"an origin":        {'O', 0},
		"a type":           {'Y', 0},
	} {
		event, _, _ := decode(t, d, data)
		require.Equal(t, tail.Other, event, name)
	}
}

// A migration of a later version may add columns, and in another order.
func TestDecoder_finds_columns_by_their_names(t *testing.T) {
	t.Parallel()
	d := tail.NewDecoder(table)
	names, row := append(slices.Clone(columns), "new"), append(textRow(), []byte("value"))
	slices.Reverse(names)
	slices.Reverse(row)
	decode(t, d, relation(table, names...))
	_, c, _ := decode(t, d, insert(table, 't', row...))
	require.Equal(t, int64(3), c.Spool)
	require.Equal(t, 21, c.Lane)
}

func TestDecoder_tells_that_the_table_is_described(t *testing.T) {
	t.Parallel()
	d := tail.NewDecoder(table, table+1)
	event, _, _ := decode(t, d, relation(table, columns...))
	require.Equal(t, tail.Described, event)
	event, _, _ = decode(t, d, relation(table+1, "spool"))
	require.Equal(t, tail.Other, event, "it is another table")
}

func TestDecoder_refuses_what_it_cannot_read(t *testing.T) {
	t.Parallel()
	wrong, long := textRow(), binaryRow()
	wrong[1] = []byte("three")
	long[1] = []byte("12345678")
	whole := insert(table, 't', textRow()...)
	for name, data := range map[string][]byte{
		"nothing":        {},
		"a short begin":  begin(1)[:10],
		"a short commit": commit(1)[:5],
		"a short row":    whole[:12],
		"a short table":  relation(table, columns...)[:30],
		"no number":      insert(table, 't', wrong...),
		"a long number":  insert(table, 'b', long...),
	} {
		d := tail.NewDecoder(table)
		decode(t, d, relation(table, columns...))
		_, _, _, err := d.Decode(data)
		require.Error(t, err, name)
	}
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
		event, c, _, err := d.Decode(data)
		if err == nil && event != tail.Changed {
			require.Zero(t, c)
		}
	})
}
