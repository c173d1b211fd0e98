package tail

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSnapshot_sees_what_ended_before_it(t *testing.T) {
	t.Parallel()
	s, err := ParseSnapshot("100:105:100,103")
	require.NoError(t, err)
	for transaction, sees := range map[uint32]bool{99: true, 100: false, 101: true, 103: false, 104: true, 105: false, 200: false} {
		require.Equal(t, sees, s.Sees(transaction), transaction)
	}
	all, err := ParseSnapshot("7:7:")
	require.NoError(t, err)
	require.True(t, all.Sees(6))
	require.False(t, all.Sees(7))
}

// The log has the low 32 bits of an id, and a snapshot has all 64.
func TestSnapshot_sees_transactions_of_both_sides_of_a_wrap(t *testing.T) {
	t.Parallel()
	const wrap = int64(3) << 32
	s := Snapshot{next: wrap + 2, Running: []int64{wrap - 5, wrap + 1}}
	low := func(id int64) uint32 { return uint32(id) } //nolint:gosec // the low bits are meant
	require.True(t, s.Sees(low(wrap-1)))
	require.True(t, s.Sees(low(wrap)))
	require.False(t, s.Sees(low(wrap-5)))
	require.False(t, s.Sees(low(wrap+1)))
	require.False(t, s.Sees(low(wrap+2)))
	require.False(t, s.Sees(low(wrap+1000)))
}

func TestSnapshot_of_another_form_is_an_error(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "1:2", "1:x:", "1:2:y", "1:2:3:4"} {
		_, err := ParseSnapshot(text)
		require.Error(t, err, text)
	}
}
