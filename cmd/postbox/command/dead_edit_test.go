package command_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
)

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "content")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestEdit_replaces_what_the_files_have(t *testing.T) {
	t.Parallel()
	b := shop(t)
	out := b.ok("dead", "edit", "1", "--payload-file", file(t, "new\x00\xff"), "--metadata-file", file(t, `{"about":"a mended one"}`), "--allow-edit", "--yes", "--actor", "ada")
	require.Equal(t, "1 dead letter edited and requeued.\n", out)
	messages, _, err := b.admin().Messages(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), MessageID: "d-1"})
	require.NoError(t, err)
	require.Len(t, messages, 1)
	m, err := b.admin().Message(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), ID: messages[0].ID})
	require.NoError(t, err)
	require.Equal(t, "new\x00\xff", string(m.Payload))
	require.Equal(t, map[string]string{"about": "a mended one", "postbox_edited_from": "1"}, map[string]string(m.Metadata))
	require.Contains(t, b.ok("dead", "show", "1"), "edited and requeued by ada")
	again := b.run("dead", "edit", "1", "--payload-file", file(t, ""), "--allow-edit", "--yes")
	require.Equal(t, command.ExitError, again.code)
	require.Contains(t, again.err, "dead letter has been edited and requeued")
}

func TestEdit_says_what_is_wrong(t *testing.T) {
	t.Parallel()
	b := shop(t)
	payload := file(t, "new")
	for want, args := range map[string][]string{
		"--allow-edit is missing":                             {"1", "--payload-file", payload},
		"--payload-file and --metadata-file are missing":      {"1", "--allow-edit"},
		"--payload-file: open":                                {"1", "--allow-edit", "--payload-file", payload + "x"},
		"is not a JSON object whose values are texts":         {"1", "--allow-edit", "--metadata-file", file(t, `{"n":1}`)},
		"This needs a confirmation":                           {"1", "--allow-edit", "--payload-file", payload},
		`"x" is no id: use the number in the column ID of th`: {"x", "--allow-edit", "--payload-file", payload},
	} {
		r := b.run(append([]string{"dead", "edit"}, args...)...)
		require.Equal(t, command.ExitUsage, r.code, want)
		require.Contains(t, r.err, want)
	}
	question := b.answer("n\n", "dead edit 1 --allow-edit --payload-file "+payload)
	require.Contains(t, question.err, "new payload of 3 bytes and the metadata as it is:")
	require.Contains(t, question.err, "Edit and requeue dead letter 1, message d-1 of consumer billing, topic orders?")
	question = b.answer("n\n", "dead edit 1 --allow-edit --metadata-file "+file(t, `{}`))
	require.Contains(t, question.err, "the payload as it is and new metadata of 0 values:")
	require.Len(t, b.letters(""), 2)
}
