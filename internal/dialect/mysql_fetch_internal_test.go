package dialect

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A drainer reads those of its lanes that have more messages, so in time it reads each number of
// them.
func TestMySQL_G8_remembers_few_texts_whatever_the_number_of_lanes_of_a_read(t *testing.T) {
	t.Parallel()
	names, err := NewNames("", "", "")
	require.NoError(t, err)
	statements, err := New(MySQL, names)
	require.NoError(t, err)
	params, texts := FetchParams{PerLane: 1}, map[string]bool{}
	for lane := range Lanes {
		params.Cursors = append(params.Cursors, Cursor{Lane: lane})
		for _, due := range []int{0, 1} {
			params.Due = due
			texts[statements.Fetch(params).Text] = true
		}
	}
	require.Len(t, texts, 2*Lanes)
	remembered := 0
	statements.made.Range(func(_, text any) bool {
		remembered += len(fmt.Sprint(text))
		return true
	})
	require.Less(t, remembered, 1<<20, "bytes")
}
