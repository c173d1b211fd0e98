package command_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// hostile has what a terminal acts on: a title, colours, a line of its own, a C1 control, text from
// right to left, and bytes that are no text.
const hostile = "\x1b]0;owned\x07\x1b[31mred\r\n\u009b2J\u202e\U000e0001fake"

func TestHostile_content_never_reaches_a_terminal_as_it_is(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	d := draft(hostile, hostile, hostile)
	d.Payload, d.Metadata = []byte(hostile), map[string]string{hostile: hostile}
	b.append(b.outbox, d)
	b.letter(hostile, hostile, hostile)
	b.exec(b.statements.InsertDeadLetter(dialect.InboxLetter{
		Letter:   dialect.Letter{Subject: []byte("s"), Topic: hostile, MessageID: []byte("\xff\x1b"), Payload: []byte("\xff\x1b"), Metadata: []byte("{}"), Error: hostile},
		Consumer: hostile, Key: []byte("\xff\x1b"), Attempts: 1,
	}))
	require.NoError(t, b.admin().Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), Key: hostile}))
	for _, args := range []string{
		"queues", "messages list", "messages show 1", "dead list", "dead show 1", "dead show 2", "keys list", "doctor", "check",
	} {
		for _, format := range []string{"table", "json", "jsonl"} {
			r := b.run(append(strings.Fields(args), "-o", format)...)
			for _, text := range []string{r.out, r.err} {
				for _, c := range text {
					require.True(t, c == '\n' || unicode.IsPrint(c), "%s -o %s prints %q", args, format, c)
				}
			}
			if format == "jsonl" {
				for line := range strings.Lines(r.out) {
					require.True(t, json.Valid([]byte(line)), line)
				}
			}
		}
	}
	list := b.ok("messages", "list")
	require.Equal(t, 2, strings.Count(list, "\n"), "a message is one line")

	var record struct{ Topic, Key string }
	require.NoError(t, json.Unmarshal([]byte(b.ok("messages", "show", "1", "-o", "json")), &record))
	require.Equal(t, hostile, record.Topic, "JSON keeps the text")
	require.Equal(t, hostile, record.Key)
	require.Contains(t, b.ok("dead", "show", "2", "-o", "json"), `"payload_base64":"/xs="`)

	missing := b.run("messages", "list", "--outbox", hostile)
	require.NotContains(t, missing.err, "\x1b")
}
