package command

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/internal/refusal"
)

const (
	// dashboardAddress is where the dashboard is served unless --listen says otherwise, or another program has the port.
	dashboardAddress = "127.0.0.1:8080"
	// minToken keeps a token from being guessed.
	minToken = 16
	// headerPatience is how long a client may take to send the head of a request, and stopPatience is how long requests may take when the command ends.
	headerPatience = 10 * time.Second
	stopPatience   = 5 * time.Second
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

Without --token-file only requests from this machine are answered, and --listen
takes a loopback address only. With it a browser asks for a name and a password:
the password is the first line of the file, of at least 16 characters, and the
name is recorded with each action. Other machines see the password on its way
unless you put a proxy with TLS before the dashboard.

If port 8080 is in use and --listen is not given, a free port is chosen. The
address is printed to the standard error. So is a line for each request that is
refused, at most 20 in a minute: from which address, what, and why. A browser
sends its first request without a password.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			token, err := flags.check()
			if err != nil {
				return err
			}
			return p.on(func(s *session, _ []string) error { return s.dashboard(cmd, flags, token) })(cmd, args)
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
		content, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return "", usage(fmt.Errorf("read the token: %w", err))
		}
		token, _, _ = strings.Cut(string(content), "\n")
		token = strings.TrimSpace(token)
		if len(token) < minToken {
			return "", usagef("the token in %q has %d characters: write at least %d, for example with \"openssl rand -hex 16\"", f.tokenFile, len(token), minToken)
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

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

func (s *session) dashboard(cmd *cobra.Command, flags dashboardFlags, token string) error {
	operator, err := admin.New(s.database, admin.Config{Actor: s.actor, AllowEdit: flags.allowEdit}, nil)
	if err != nil {
		return err
	}
	config := dashboard.Config{Title: flags.title, ReadOnly: flags.readOnly, Authorise: localUser(flags.allowEdit)}
	if token != "" {
		config.Authorise = namedUser(flags.allowEdit)
	}
	logger := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
	var handler http.Handler
	handler, err = dashboard.New(operator, config, logger)
	if err != nil {
		return err
	}
	if token != "" {
		handler = askForToken(token, refusal.New(logger), handler)
	}
	ctx := cmd.Context()
	listener, err := listen(ctx, flags.listen, cmd.Flags().Changed("listen"))
	if err != nil {
		return err
	}
	s.progress("The dashboard is at http://%s/ until you stop this command.", listener.Addr())
	return serve(ctx, listener, handler)
}

// localUser is the user of this machine. Actions are recorded under the name that other commands use, too.
func localUser(edits bool) func(*http.Request) (dashboard.Access, error) {
	return func(r *http.Request) (dashboard.Access, error) {
		access, err := dashboard.LoopbackOnly(r)
		access.Actor, access.Edit = "", access.Edit && edits
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
)

// askForToken lets only requests through that have a name and the token.
func askForToken(token string, refusals *refusal.Log, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		if name == "" || subtle.ConstantTimeCompare([]byte(password), []byte(token)) != 1 {
			reason := errWrongToken
			if name == "" {
				reason = errNoName
			}
			refusals.Refused(r, "", reason)
			w.Header().Set("WWW-Authenticate", `Basic realm="Postbox: your name, and the token as password", charset="UTF-8"`)
			http.Error(w, "Give your name, and the token as password.", http.StatusUnauthorized)
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

// serve answers requests until the context ends, and then lets those that run come to an end.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerPatience}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the dashboard: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	err := server.Shutdown(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // an action on many dead letters stops, and what it has done stays done
	}
	if serveErr := <-ended; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}
