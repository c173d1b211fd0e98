package dialect

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// harmless needs no quoting on any database, and ends no statement.
var harmless = regexp.MustCompile(`\A("[A-Za-z0-9_]+"\.)?[A-Za-z0-9_]+\z`)

// Names of tables are the only words of users that become SQL text as they are.
func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"", "postbox_", `a"b`, "a`b", "a'b", "a;b", "a--", "a/*", `a\`, "a\n", "a\x00b", "ä", "Ａ", "1a", "a b", "{messages}", "?", "$1", strings.Repeat("x", 33),
	} {
		f.Add(name, name)
		f.Add("", name)
	}
	f.Fuzz(func(t *testing.T, schema, prefix string) {
		names, err := NewNames(schema, prefix, "")
		if err != nil {
			return
		}
		for _, kind := range []Kind{PostgreSQL, MySQL, SQLite} {
			statements, err := New(kind, names)
			if err != nil {
				require.NotEmpty(t, schema)
				continue
			}
			for _, ending := range tables {
				name := names.Table(ending)
				require.Regexp(t, harmless, name)
				require.LessOrEqual(t, len(names.Prefix+ending), 63)
			}
			for name := range statements.texts {
				text := statements.of(name).text
				require.NotContains(t, text, ";")
				require.NotContains(t, text, "{")
			}
		}
	})
}

// Values that PostgreSQL gets in an array are read as they were written: no quote and no comma in
// one ends it.
func FuzzRow_arrays(f *testing.F) {
	for _, text := range []string{"", "NULL", `","`, `\`, `\\"`, "{}", "a\nb", "'; DROP TABLE x", "ä"} {
		f.Add(text, []byte(text))
	}
	f.Fuzz(func(t *testing.T, topic string, payload []byte) {
		args := pack(nil, []Row{{Topic: topic, Payload: payload}, {Topic: "second", Payload: []byte("second")}})
		require.Equal(t, append(slices.Clone(payload), "second"...), args["bytes"], "the bytes are as they are")
		texts, ok := args["topics"].(string)
		require.True(t, ok)
		require.Equal(t, []string{topic, "second"}, readArray(t, texts))
	})
}

// readArray reads an array of quoted words as PostgreSQL's manual describes it.
func readArray(t *testing.T, text string) []string {
	t.Helper()
	require.True(t, strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}"), text)
	var words []string
	for rest := text[1 : len(text)-1]; rest != ""; {
		require.Equal(t, byte('"'), rest[0], text)
		var word strings.Builder
		i := 1
		for ; rest[i] != '"'; i++ {
			if rest[i] == '\\' {
				i++
			}
			word.WriteByte(rest[i])
		}
		words = append(words, word.String())
		rest = strings.TrimPrefix(rest[i+1:], ",")
	}
	return words
}
