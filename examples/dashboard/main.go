// Dashboard runs a small shop on SQLite that never stops, and serves the dashboard of its outbox
// and its queue. The shop is healthy. A button starts an incident, so that there is something to
// see and to press.
//
// This file has the dashboard and the button. shop.go places orders, publishes them from the outbox
// and handles them from a queue.
package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite" // driver "sqlite"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/metrics/minutes"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8080", "address of the dashboard")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *address); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

// sqliteOptions are what Postbox asks for. The shop forgets everything when it ends, so it does not
// wait for the disk.
const sqliteOptions = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate"

// run runs the shop and its dashboard until the context ends, in a folder that it removes
// afterwards.
func run(ctx context.Context, out io.Writer, address string) (err error) {
	folder, err := os.MkdirTemp("", "postbox-dashboard-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(filepath.Join(folder, "shop.db"))+sqliteOptions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1) // SQLite has one writer
	database := postbox.Database{DB: db, Dialect: postbox.SQLite}
	if err := postbox.Migrate(ctx, database); err != nil {
		return err
	}

	recorder, err := minutes.New(database, minutes.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, recorder.Close()) }()
	database.Metrics = recorder
	operator, err := admin.New(database, admin.Config{}, nil)
	if err != nil {
		return err
	}
	// A service asks for its own login here. The demo answers requests from this machine only,
	// under an address that nobody else knows.
	board, err := dashboard.New(operator, dashboard.Config{Authorise: dashboard.LoopbackOnly, Title: "Postbox demo", Refresh: 2 * time.Second}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, board.Close()) }()
	running, ctx := errgroup.WithContext(ctx)
	s := &shop{database: database, admin: operator}
	running.Go(func() error { return s.run(ctx) })
	running.Go(func() error { return serve(ctx, out, address, board, s) })
	if err := running.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// serve serves the dashboard until the context ends. If the port is in use, another one will do.
func serve(ctx context.Context, out io.Writer, address string, board http.Handler, s *shop) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		listener, err = config.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return err
	}
	secret := "/" + rand.Text()
	mux := http.NewServeMux()
	mux.Handle(secret+"/", http.StripPrefix(secret, board))
	mux.HandleFunc(secret+"/incident", s.serveIncident)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	fmt.Fprintf(out, "Open http://%s%s/ in a browser: the shop is healthy. Start an incident at http://%[1]s%[2]s/incident . Ctrl-C ends the demo.\n", listener.Addr(), secret)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serveIncident has a button that starts the incident, and ends it.
func (s *shop) serveIncident(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		s.incident.Store(!s.incident.Load())
		http.Redirect(w, r, "incident", http.StatusSeeOther)
		return
	}
	state, button := "The shop is healthy.", "Start an incident"
	if s.incident.Load() {
		state, button = "Three customers make trouble.", "End the incident"
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!doctype html><title>Incident</title><p>%s <form method="post"><button>%s</button></form><p><a href="./">Dashboard</a>`, state, button)
}
