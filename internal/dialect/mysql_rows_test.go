package dialect

import (
	"encoding/hex"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func writtenRows(tb testing.TB) mysql {
	tb.Helper()
	names, err := NewNames("", "", "")
	require.NoError(tb, err)
	lists, ok := newMySQL(names).lists.(mysql)
	require.True(tb, ok)
	return lists
}

// In the text of an INSERT of several rows, each byte that a user has given is two hexadecimal
// digits.
func FuzzRow_digits(f *testing.F) {
	for _, text := range []string{"", "NULL", "'", `\`, `\'`, "''", "a\nb", "\x00", "'; DROP TABLE x", "ä", "?", "{now}"} {
		f.Add("orders", []byte(text), int64(1), int64(0))
		f.Add(text, []byte(text), int64(-1), int64(1))
	}
	m := writtenRows(f)
	value := `, (?:NULL|X'([0-9a-f]*)')`
	row := `\(7, 1, [01], (?:NULL|-?\d+), (?:\d+|` + regexp.QuoteMeta(m.rows.now) + ` \+ -?\d+), ` + regexp.QuoteMeta(m.rows.now) + strings.Repeat(value, 5)
	whole := regexp.MustCompile(`\A` + regexp.QuoteMeta(m.rows.head) + row + `, ` + regexp.QuoteMeta(m.rows.holdWriter) + `\), ` + row + `, 0\)\z`)
	f.Fuzz(func(t *testing.T, topic string, given []byte, hash, time int64) {
		r := Row{
			Lane: 1, State: StateReady, KeyHash: &hash, Topic: topic, MessageID: given, Key: given, Payload: given, Metadata: given,
		}
		if time > 0 {
			r.State, r.Due = StateScheduled, time
		}
		query, ok := m.rows.append(7, []Row{r, {Lane: 1, Topic: topic, Payload: given}})
		require.Equal(t, inAnyCharset(topic), ok)
		if !ok {
			return
		}
		require.Empty(t, query.Args)
		found := whole.FindStringSubmatch(query.Text)
		require.NotNil(t, found, query.Text)
		for i, want := range []string{topic, string(given), string(given), string(given), string(given), topic, "", "", string(given), ""} {
			bytes, err := hex.DecodeString(found[i+1])
			require.NoError(t, err)
			require.Equal(t, want, string(bytes))
		}
	})
}

// What is too long for a text, or what a character set may change, is passed as arguments. So is a
// single row, whose text can be kept prepared.
func TestRows_are_arguments_where_they_cannot_be_text(t *testing.T) {
	t.Parallel()
	m := writtenRows(t)
	small, large := Row{Topic: "orders", Payload: []byte("small")}, Row{Topic: "orders", Payload: make([]byte, maxWritten)}
	for _, rows := range [][]Row{{small}, {small, large}, {small, {Topic: "Größe"}}, {{Topic: `\`}, small}} {
		queries := m.append(1, rows)
		require.Len(t, queries, 1)
		require.Len(t, queries[0].Args, 12*len(rows))
	}
	for _, claims := range [][][]byte{{[]byte("one")}, {[]byte("small"), make([]byte, maxWritten)}} {
		require.Len(t, m.ingest(1, claims, nil).Claim[0].Args, len(claims))
	}
	ingest := m.ingest(1, [][]byte{[]byte("b"), []byte("a")}, nil)
	require.Contains(t, ingest.Claim[0].Text, "VALUES (X'61', ")
	require.Contains(t, ingest.Claim[0].Text, ", (X'62', ", "in the order of the claims")
	require.Contains(t, m.append(1, []Row{small, small})[0].Text, "X'"+hex.EncodeToString([]byte("small"))+"'")
	require.Equal(t, []any{[]byte("a"), []byte("b")}, ingest.Claimed().Args)
}
