package command_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// serve starts the dashboard on a free port, and returns its address.
func (b *bench) serve(args ...string) (address string) {
	b.Helper()
	reader, writer := io.Pipe()
	root := command.New(command.Options{LookupEnv: func(name string) (string, bool) { value, ok := b.environment()[name]; return value, ok }})
	root.SetArgs(append([]string{"dashboard", "--listen", "127.0.0.1:0"}, args...))
	root.SetErr(writer)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() { ended <- command.Execute(ctx, root) }()
	b.Cleanup(func() {
		cancel()
		require.Equal(b, command.ExitOK, <-ended)
	})
	line, err := bufio.NewReader(reader).ReadString('\n')
	require.NoError(b, err)
	found := regexp.MustCompile(`http://\S+/`).FindString(line)
	require.NotEmpty(b, found, line)
	return found
}

func (b *bench) ask(method, address, name, password string) (status int, body string) {
	b.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, address, strings.NewReader(url.Values{}.Encode()))
	require.NoError(b, err)
	if name != "" {
		request.SetBasicAuth(name, password)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(b, err)
	content, err := io.ReadAll(response.Body)
	require.NoError(b, err)
	require.NoError(b, response.Body.Close())
	return response.StatusCode, string(content)
}

func TestDashboard_is_served_to_this_machine(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "customer-1"))
	address := b.serve("--title", "Shop, test", "--actor", "ada")
	status, page := b.ask(http.MethodGet, address, "", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "Shop, test")
	status, page = b.ask(http.MethodPost, address+"pause?outbox=outbox", "", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "An operator paused it at")
	entries, err := b.admin().Audit(t.Context(), admin.AuditFilter{})
	require.NoError(t, err)
	require.Equal(t, "ada", entries[0].Actor)
}

func TestDashboard_that_is_read_only_refuses_an_action(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "customer-1"))
	status, _ := b.ask(http.MethodPost, b.serve("--read-only")+"pause?outbox=outbox", "", "")
	require.Equal(t, http.StatusForbidden, status)
}

func TestDashboard_with_a_token_asks_for_it_and_records_the_name(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "customer-1"))
	const token = "0123456789abcdef"
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	address := b.serve("--token-file", file)
	for _, wrong := range [][2]string{{"", ""}, {"anna", ""}, {"anna", token + "0"}, {"", token}} {
		status, page := b.ask(http.MethodGet, address, wrong[0], wrong[1])
		require.Equal(t, http.StatusUnauthorized, status, wrong)
		require.NotContains(t, page, "Overview")
	}
	status, _ := b.ask(http.MethodPost, address+"pause?outbox=outbox", "anna", token)
	require.Equal(t, http.StatusOK, status)
	entries, err := b.admin().Audit(t.Context(), admin.AuditFilter{})
	require.NoError(t, err)
	require.Equal(t, "anna", entries[0].Actor)
}

func TestDashboard_refuses_an_address_that_others_reach_without_a_token(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	short := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(short, []byte("secret\n"), 0o600))
	for _, args := range [][]string{
		{"--listen", ":8080"},
		{"--listen", "0.0.0.0:8080"},
		{"--listen", "192.0.2.1:8080"},
		{"--listen", "[::]:8080"},
		{"--listen", "example.org:80"},
		{"--listen", "8080"},
		{"--token-file", short},
		{"--token-file", short + ".none"},
	} {
		r := b.run(append([]string{"dashboard"}, args...)...)
		require.Equal(t, command.ExitUsage, r.code, "%v: %s", args, r.err)
		require.NotContains(t, r.err, "secret")
	}
}
