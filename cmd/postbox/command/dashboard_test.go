package command_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// serve starts the dashboard on a free port, and returns its address.
func (b *bench) serve(args ...string) (address string) {
	b.Helper()
	address, _ = b.serveLogged(args...)
	return address
}

// serveLogged also returns what the dashboard prints after its address, and the end of it all when
// the test is over.
func (b *bench) serveLogged(args ...string) (address string, log *printed) {
	b.Helper()
	log = &printed{first: make(chan string, 1)}
	root := command.New(command.Options{LookupEnv: func(name string) (string, bool) { value, ok := b.environment()[name]; return value, ok }})
	root.SetArgs(append([]string{"dashboard", "--listen", "127.0.0.1:0"}, args...))
	root.SetErr(log)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() { ended <- command.Execute(ctx, root) }()
	var line string
	select {
	case line = <-log.first:
	case code := <-ended:
		require.Failf(b, "the dashboard ended", "with %d: %s", code, log)
	}
	b.Cleanup(func() {
		cancel()
		require.Equal(b, command.ExitOK, <-ended)
	})
	found := regexp.MustCompile(`http://\S+/`).FindString(line)
	require.NotEmpty(b, found, line)
	return found, log
}

// printed collects what a command prints after its first line.
type printed struct {
	mu    sync.Mutex
	first chan string // gets the first line
	begun bool
	text  strings.Builder
}

// Write adds to the text.
func (p *printed) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.Write(text)
	if line, rest, whole := strings.Cut(p.text.String(), "\n"); whole && !p.begun {
		p.begun = true
		p.first <- line
		p.text.Reset()
		p.text.WriteString(rest)
	}
	return len(text), nil
}

// String returns the text.
func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
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
	require.Contains(t, page, `title="You">ada<`)
	status, page = b.ask(http.MethodPost, address+"pause?outbox=outbox", "", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "An operator paused it at")
	entries, _, err := b.admin().Audit(t.Context(), admin.Filter{})
	require.NoError(t, err)
	require.Equal(t, "ada", entries[0].Actor)
}

func TestDashboard_that_is_read_only_refuses_an_action(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "customer-1"))
	address, log := b.serveLogged("--read-only")
	status, _ := b.ask(http.MethodPost, address+"pause?outbox=outbox", "", "")
	require.Equal(t, http.StatusForbidden, status)
	require.Regexp(t, `level=INFO method=POST msg="The dashboard refused a request" path=/pause reason="the dashboard is read-only" remote=127.0.0.1:\d+`, sorted(log))
}

// An operator must see who knocks at the door, and an attacker must not fill the disk. The line is
// written before the answer.
func TestDashboard_logs_refused_requests_without_secrets(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	address, log := b.serveLogged()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"pause?outbox=outbox&secret=1", nil)
	require.NoError(t, err)
	request.Header.Set("Origin", "https://attacker.example")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusForbidden, response.StatusCode)
	require.Regexp(t, `method=POST msg="The dashboard refused a request" path=/pause reason="cross-origin request detected.*remote=127.0.0.1:\d+`, sorted(log))

	request.Header = http.Header{}
	request.Host = "attacker.example"
	response, err = http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Regexp(t, `reason="[^"]*only requests from this machine are answered`, sorted(log))

	const token = "0123456789abcdef"
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	address, guarded := b.serveLogged("--token-file", file)
	b.ask(http.MethodGet, address, "", "")
	require.Contains(t, guarded.String(), `reason="it has no name and no password"`)
	for range 30 {
		b.ask(http.MethodGet, address+"letters", "secret-name", "secret-password")
	}
	require.Contains(t, guarded.String(), `reason="its password is not the token"`)
	require.Equal(t, 20, strings.Count(guarded.String(), "\n"), "in this minute")
	require.NotContains(t, log.String()+guarded.String(), "secret")
}

// sorted are the fields of the lines in the order of their names: a logger of Watermill gets them
// in a map.
func sorted(log *printed) string {
	var lines []string
	for line := range strings.Lines(log.String()) {
		fields := regexp.MustCompile(`\w+=(?:"(?:[^"\\]|\\.)*"|\S+)`).FindAllString(line, -1)
		slices.Sort(fields)
		lines = append(lines, strings.Join(fields, " "))
	}
	return strings.Join(lines, "\n")
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
	entries, _, err := b.admin().Audit(t.Context(), admin.Filter{})
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
