package spool

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEncodeMetadata_encodes_plain_text_as_json_does(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 3 * fewWords {
		many[fmt.Sprint("key ", i)] = fmt.Sprint("value/", i)
	}
	for _, metadata := range []map[string]string{nil, {}, {"": ""}, {"b": "~'\x7f", "a": "1"}, many} {
		text, ok := encodePlain(metadata)
		require.True(t, ok)
		if metadata == nil {
			metadata = map[string]string{} // JSON says null, and there is none in the table
		}
		general, err := json.Marshal(metadata)
		require.NoError(t, err)
		require.Equal(t, string(general), string(text))
	}
	for _, word := range []string{"\n", `"`, `\`, "<", ">", "&", "ü", "\u2028", "\xff"} {
		_, ok := encodePlain(map[string]string{"a": word})
		require.False(t, ok, "%q", word)
		_, ok = encodePlain(map[string]string{word: "a"})
		require.False(t, ok, "%q", word)
	}
}
