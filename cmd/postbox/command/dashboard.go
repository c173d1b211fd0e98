package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/internal/refusal"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

const (
	// dashboardAddress is where the dashboard is served unless --listen says otherwise, or another
	// program has the port.
	dashboardAddress = "127.0.0.1:8080"
	// minToken and minDifferent keep a token from being guessed.
	minToken, minDifferent = 16, 8
	// headerPatience is how long a client may take to send the head of a request, requestPatience
	// all of it, and idlePatience is how long a connection may be without one. The handler sets how
	// long a client may take to read an answer. stopPatience is how long requests may take when the
	// command ends.
	headerPatience  = 10 * time.Second
	requestPatience = time.Minute
	idlePatience    = time.Minute
	stopPatience    = 5 * time.Second
	// maxConnections bounds the open files: more clients wait until others are gone.
	maxConnections = 100
)

// dashboardFlags are the flags of the command.
type dashboardFlags struct {
	listen, tokenFile, title string
	readOnly, allowEdit      bool
}

func (p *program) dashboardCommand() *cobra.Command {
	var flags dashboardFlags
	cmd := &cobra.Command{
		Use: "dashboard", Short: "Serve the dashboard: web pages that show everything, with buttons to act",
		Long: `Serve the dashboard until the command is stopped: web pages that show outboxes,
queues, messages and dead letters, and buttons to act on them.

The address is printed to the standard error. Without --token-file it has a
secret, which is a new one at each start. Who knows the address may do
everything. Other users of the machine do not know it. Only requests from this
machine are answered then, and --listen takes a loopback address only. With
--token-file a browser asks for a name and a password: the password is the first
line of the file, of at least 16 characters and 8 different ones, and the name is
recorded with each action. The file may be readable for its owner and its group,
and for no one else.
Other machines see the password on its way unless you put a proxy with TLS before
the dashboard.

With several databases the first page has a line for each of them and their sum.

If port 8080 is in use and --listen is not given, a free port is chosen. A line
is printed for each request that is refused, at most 20 in a minute: from which
address, what, and why. A browser sends its first request without a password.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := flags.check()
			if err != nil {
				return err
			}
			return p.dashboard(cmd, flags, token)
		},
	}
	cmd.Flags().StringVar(&flags.listen, "listen", dashboardAddress, "address to listen on")
	cmd.Flags().StringVar(&flags.tokenFile, "token-file", "", "file with the password that users must know")
	cmd.Flags().StringVar(&flags.title, "title", "", "name at the top of each page (default \"Postbox\")")
	cmd.Flags().BoolVar(&flags.readOnly, "read-only", false, "show pages only, and refuse every action")
	cmd.Flags().BoolVar(&flags.allowEdit, "allow-edit", false, "let users edit and requeue dead letters")
	return cmd
}

// check refuses an address that everyone can reach without a password, and returns the password.
func (f dashboardFlags) check() (token string, err error) {
	if f.tokenFile != "" {
		if token, err = readToken(f.tokenFile); err != nil {
			return "", usage(err)
		}
	}
	host, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		return "", usage(fmt.Errorf("--listen: %w", err))
	}
	if token == "" && !isLoopback(host) {
		return "", usagef("--listen %s can be reached from other machines: give a password with --token-file, or listen on 127.0.0.1", f.listen)
	}
	return token, nil
}

// readToken refuses a token that others can read or guess.
func readToken(name string) (string, error) {
	about, err := os.Stat(name)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	// The group may read it: so Kubernetes gives a secret to a container that does not run as root.
	if about.Mode().Perm()&0o037 != 0 && runtime.GOOS != "windows" {
		return "", fmt.Errorf("the token in %q can be read or changed by others (%s): chmod 600 %[1]q", name, about.Mode().Perm())
	}
	content, err := os.ReadFile(name) //nolint:gosec // the operator names the file
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token, _, _ := strings.Cut(string(content), "\n")
	token = strings.TrimSpace(token)
	different := map[rune]bool{}
	for _, r := range token {
		different[r] = true
	}
	if len(token) < minToken || len(different) < minDifferent {
		return "", fmt.Errorf("the token in %q has %d characters, %d of them different: write at least %d with %d different ones, "+
			"for example with \"openssl rand -hex 16\"", name, len(token), len(different), minToken, minDifferent)
	}
	return token, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

func (p *program) dashboard(cmd *cobra.Command, flags dashboardFlags, token string) error {
	found, err := p.settings.resolveAll(p.options.LookupEnv)
	if err != nil {
		return err
	}
	logger := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
	var boards []dashboard.Board
	names := boardNames(found)
	access := existing
	if len(found) > 1 && found[0].database.Deployment == "" {
		access = later // the first page says which database is away
	}
	for n, one := range found {
		s, err := p.open(cmd, access, one)
		if err != nil {
			return err
		}
		defer func() { _ = s.db.Close() }()
		if err := s.belongs(cmd.Context()); err != nil {
			return s.explain(err)
		}
		board, err := s.board(flags, token != "", logger)
		if err != nil {
			return s.explain(err)
		}
		defer func() { _ = board.Close() }() // before the database
		boards = append(boards, dashboard.Board{Name: names[n], Handler: board})
	}
	var handler http.Handler = boards[0].Handler
	if len(boards) > 1 {
		if handler, err = dashboard.Several(boards...); err != nil {
			return err
		}
	}
	return p.serveDashboard(cmd, flags, token, handler, logger)
}

// board makes the dashboard of a database.
func (s *session) board(flags dashboardFlags, named bool, logger watermill.LoggerAdapter) (*dashboard.Handler, error) {
	operator, err := admin.New(s.database, admin.Config{Actor: s.actor, AllowEdit: flags.allowEdit}, nil)
	if err != nil {
		return nil, err
	}
	config := dashboard.Config{Title: flags.title, ReadOnly: flags.readOnly, Authorise: localUser(cmp.Or(s.actor, spool.UserName()), flags.allowEdit)}
	if named {
		config.Authorise = namedUser(flags.allowEdit)
	}
	return dashboard.New(operator, config, logger)
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// longestName is that of a board.
const longestName = 60

// boardNames are the names of the databases, with their servers where these do not differ.
func boardNames(of []connection) []string {
	var short, long []string
	for n, one := range of {
		place := cmp.Or(strings.Trim(strings.TrimPrefix(one.address.place, "file "), `"`), "database")
		short = append(short, boardName(path.Base(place), n))
		long = append(long, boardName(place, n))
	}
	for _, names := range [][]string{short, long} {
		if len(slices.Compact(slices.Sorted(slices.Values(names)))) == len(names) {
			return names
		}
	}
	for n := range short {
		short[n] = strings.TrimSuffix(fmt.Sprintf("%d-%s", n+1, short[n]), "-")
	}
	return short
}

// boardName makes a name of an address: its end says more than its beginning.
func boardName(place string, n int) string {
	name := strings.Trim(notInNames.ReplaceAllString(place, "-"), "-._")
	name = strings.TrimLeft(name[max(0, len(name)-longestName):], "-._")
	return cmp.Or(name, fmt.Sprintf("database-%d", n+1))
}

func (p *program) serveDashboard(cmd *cobra.Command, flags dashboardFlags, token string, handler http.Handler, logger watermill.LoggerAdapter) error {
	at := "/"
	if token != "" {
		handler = askForToken(token, refusal.New(logger), handler)
	} else {
		secret := rand.Text()
		handler, at = underSecret(secret, refusal.New(logger), handler), "/"+secret+"/"
	}
	ctx := cmd.Context()
	listener, err := listen(ctx, flags.listen, cmd.Flags().Changed("listen"))
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "The dashboard is at http://%s%s until you stop this command.\n", listener.Addr(), at)
	return serve(ctx, listener, handler)
}

// localUser is the user of this machine. Actions are recorded under the name that other commands
// use, too.
func localUser(name string, edits bool) func(*http.Request) (dashboard.Access, error) {
	return func(r *http.Request) (dashboard.Access, error) {
		access, err := dashboard.LoopbackOnly(r)
		access.Actor, access.Edit = name, access.Edit && edits
		return access, err
	}
}

// namedUser is the name that a user gave together with the token.
func namedUser(edits bool) func(*http.Request) (dashboard.Access, error) {
	return func(r *http.Request) (dashboard.Access, error) {
		name, _, _ := r.BasicAuth() // askForToken has checked the password
		return dashboard.Access{Actor: name, Read: true, Act: true, Edit: edits}, nil
	}
}

// Why a request is refused before the dashboard sees it.
var (
	errNoName     = errors.New("it has no name and no password")
	errWrongToken = errors.New("its password is not the token") // nor does the log have the name, which may be a password in the wrong field
	errNoSecret   = errors.New("its address is not the one that this command has printed")
)

// same compares two secrets in a time that tells neither how they differ nor how long they are.
func same(a, b string) bool {
	hashA, hashB := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(hashA[:], hashB[:]) == 1
}

// underSecret lets only requests through whose path begins with the secret: those of the user who
// has seen the address, and not those of other users and programs of the machine.
func underSecret(secret string, refusals *refusal.Log, next http.Handler) http.Handler {
	next = http.StripPrefix("/"+secret, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, _, isFolder := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if !isFolder || !same(given, secret) {
			refusals.Refused(r, "", errNoSecret)
			refuse(w, http.StatusForbidden, "Open the address that the command has printed: it is another one after each start.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// askForToken lets only requests through that have a name and the token.
func askForToken(token string, refusals *refusal.Log, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		if name == "" || !same(password, token) {
			reason := errWrongToken
			if name == "" {
				reason = errNoName
			}
			refusals.Refused(r, "", reason)
			w.Header().Set("WWW-Authenticate", `Basic realm="Postbox: your name, and the token as password", charset="UTF-8"`)
			refuse(w, http.StatusUnauthorized, "Give your name, and the token as password.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// listen takes another port if that of the default is in use.
func listen(ctx context.Context, address string, chosen bool) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil && !chosen {
		listener, err = config.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

// bounded is a listener with so many connections at a time.
type bounded struct {
	net.Listener

	slots chan struct{}
}

// Accept waits for a slot, and then for a connection.
func (b bounded) Accept() (net.Conn, error) {
	b.slots <- struct{}{}
	release := sync.OnceFunc(func() { <-b.slots })
	conn, err := b.Listener.Accept()
	if err != nil {
		release()
		return nil, err
	}
	return boundedConn{conn, release}, nil
}

// boundedConn gives its slot back when it is closed.
type boundedConn struct {
	net.Conn

	release func()
}

// Close closes the connection.
func (c boundedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// refuse answers a request that the dashboard does not see, and closes its connection: a stranger
// keeps none open.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Connection", "close")
	http.Error(w, text, status)
}

// serve answers requests until the context ends, and then lets those that run come to an end.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerPatience, ReadTimeout: requestPatience, IdleTimeout: idlePatience}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(bounded{listener, make(chan struct{}, maxConnections)}) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the dashboard: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	err := server.Shutdown(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // for pages that follow a bulk action, which Handler.Close ends
	}
	if serveErr := <-ended; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}
