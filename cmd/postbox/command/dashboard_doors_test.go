package command_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Every user and every program of a machine can send requests to its loopback address.
func TestDashboard_is_only_at_the_address_that_it_prints(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "customer-1"))
	address := b.serve()
	other := b.serve()
	printed, err := url.Parse(address)
	require.NoError(t, err)
	another, err := url.Parse(other)
	require.NoError(t, err)
	require.Regexp(t, `^/[A-Z2-7]{26}/$`, printed.Path)
	require.NotEqual(t, printed.Path, another.Path, "each start has its own")
	root := "http://" + printed.Host
	for _, path := range []string{"/", "/messages", "//", printed.Path[:len(printed.Path)-1], "/x" + printed.Path, another.Path, "/" + printed.Path} {
		status, page := b.ask(http.MethodGet, root+path, "", "")
		require.Equal(t, http.StatusForbidden, status, path)
		require.NotContains(t, page, "orders")
		require.NotContains(t, page, printed.Path)
		status, _ = b.ask(http.MethodPost, root+path+"pause?outbox=outbox", "", "")
		require.Equal(t, http.StatusForbidden, status, path)
	}
	status, _ := b.ask(http.MethodGet, address, "", "")
	require.Equal(t, http.StatusOK, status)
	queues, err := b.admin().Queues(t.Context())
	require.NoError(t, err)
	require.Zero(t, queues[0].Pause.Since)
}

// Silent connections of strangers used to stay open for ever, until the process had no file left
// for an operator.
func TestDashboard_keeps_no_connection_of_a_stranger(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	printed, err := url.Parse(b.serve())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600))
	for _, address := range []string{"http://" + printed.Host + "/", b.serve("--token-file", file)} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		transport := &http.Transport{}
		response, err := transport.RoundTrip(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.GreaterOrEqual(t, response.StatusCode, http.StatusUnauthorized)
		require.True(t, response.Close, "the server closes the connection")
		transport.CloseIdleConnections()
	}
}

func TestDashboard_refuses_a_token_that_others_can_read_or_guess(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	for name, test := range map[string]struct {
		token string
		mode  os.FileMode
		want  string
	}{
		"one letter":          {"aaaaaaaaaaaaaaaaaaaaaaaa", 0o600, "1 of them different"},
		"few letters":         {"abcabcabcabcabcabcabc", 0o600, "3 of them different"},
		"readable by all":     {"0123456789abcdef", 0o644, "can be read or changed by others"},
		"writable by a group": {"0123456789abcdef", 0o660, "can be read or changed by others"},
	} {
		file := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(file, []byte(test.token+"\n"), 0o600))
		require.NoError(t, os.Chmod(file, test.mode))
		r := b.run("dashboard", "--token-file", file)
		require.Equal(t, command.ExitUsage, r.code, name)
		require.Contains(t, r.err, test.want, name)
		require.NotContains(t, r.err, test.token, name)
	}
}
