package dashboard_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/dashboard"
)

func FuzzNotation(f *testing.F) {
	for _, seed := range []string{"", "order-1", "a/b%2F", `\x41`, `\\x41`, `\x4`, "\xff", "\\\xff", `\x` + "\xff", "\u202e", "ü", "\ufffd", "a\nb", " lead", "trail ", "a  b", " ", "   ", ` \x20 `} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		written := dashboard.Escaped(text)
		require.Equal(t, text, dashboard.Unescaped(written))
		require.True(t, utf8.ValidString(written))
		onPage := dashboard.Visible(text)
		require.Equal(t, text, dashboard.Unescaped(onPage))
		require.Equal(t, strings.Trim(onPage, " "), onPage, "a browser leaves out no blank of it")
		require.NotContains(t, onPage, "  ")
		for _, r := range written {
			require.NotContains(t, "\x00\n\r\t\u202e\u2066\u200f", string(r))
		}
		beginning, isCut := dashboard.Cut(text, 7)
		require.LessOrEqual(t, len(beginning), 7)
		require.Equal(t, len(text) > 7, isCut)
		require.True(t, strings.HasPrefix(text, beginning))
	})
}

func FuzzIndentJSON(f *testing.F) {
	for _, seed := range []string{`{}`, `[]`, `{"a":[1,{"b":"\"{"}],"c":{}}`, `123456789012345678901234567890.10`, `"\\"`, ` [ 1 , 2 ] `, `{"a":1,"a":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		text, complete, ok := dashboard.IndentJSON(payload, 1<<20)
		require.Equal(t, json.Valid(payload), ok)
		if !ok || !complete {
			return
		}
		require.True(t, json.Valid([]byte(text)), text)
		require.Equal(t, withoutSpace(string(payload)), withoutSpace(text), "nothing but space has changed")
	})
}

func withoutSpace(text string) string {
	return strings.NewReplacer(" ", "", "\n", "", "\t", "", "\r", "").Replace(text)
}

func TestIndentJSON_indents_like_json_Indent_and_is_bounded(t *testing.T) {
	t.Parallel()
	text, complete, ok := dashboard.IndentJSON([]byte(`{"id":9007199254740993,"list":[1,{}, []],"text":"a\"{,b"}`), 1<<10)
	require.True(t, ok)
	require.True(t, complete)
	require.Equal(t, "{\n  \"id\": 9007199254740993,\n  \"list\": [\n    1,\n    {},\n    []\n  ],\n  \"text\": \"a\\\"{,b\"\n}", text) //nolint:testifylint // the spaces are what is tested

	const depth = 9_000
	deep := strings.Repeat("[", depth) + strings.Repeat("]", depth)
	text, complete, ok = dashboard.IndentJSON([]byte(deep), 1<<10)
	require.True(t, ok)
	require.False(t, complete)
	require.LessOrEqual(t, len(text), 1<<10)
}

func TestFormats_for_people(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0 ms", 20 * time.Millisecond: "20 ms", 90 * time.Second: "1 min 30 s", 61 * time.Minute: "1 h 1 min", 50 * time.Hour: "2 d 2 h", time.Second: "1 s",
	} {
		require.Equal(t, want, dashboard.Span(d))
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		require.Equal(t, want, dashboard.Number(n))
	}
	require.Equal(t, "10,000", dashboard.Amount(10_000))
	require.Equal(t, "10,000+", dashboard.Amount(10_001))
	require.Equal(t, "7", dashboard.Amount(7))
	require.Equal(t, "10,000+ messages", dashboard.AmountOf(10_001, "message"))
	require.Equal(t, "1 message", dashboard.AmountOf(1, "message"))
	require.Equal(t, strings.Repeat("x", 160)+"…", dashboard.Short(strings.Repeat("x", 1<<20)))
}
