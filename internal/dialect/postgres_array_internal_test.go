package dialect

import (
	"database/sql/driver"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"
)

func TestArrayText_is_what_the_driver_would_write(t *testing.T) {
	t.Parallel()
	words := pq.StringArray{"", "orders", "NULL", `"`, `\`, `a\"b`, "{a,b}", " ", "grün", "a\nb"}
	numbers := pq.Int64Array{0, -1, 1 << 62, -1 << 63}
	for n := range len(words) + 1 {
		var text arrayText
		for _, word := range words[:n] {
			text.addWord(word)
		}
		require.Equal(t, value(t, words[:n]), text.String())
	}
	for n := range len(numbers) + 1 {
		text := newArrayText(n)
		for _, number := range numbers[:n] {
			text.addNumber(number)
		}
		require.Equal(t, value(t, numbers[:n]), text.String())
	}
	var nullable arrayText
	for _, number := range []*int64{nil, &numbers[1], nil} {
		nullable.addNullable(number)
	}
	require.Equal(t, "{NULL,-1,NULL}", nullable.String())
}

// value is the text that lib/pq gives to an array.
func value(t *testing.T, array driver.Valuer) any {
	t.Helper()
	text, err := array.Value()
	require.NoError(t, err)
	return text
}
