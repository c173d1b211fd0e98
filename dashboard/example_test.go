package dashboard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	_ "modernc.org/sqlite"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
)

// A service mounts the dashboard behind its own login: here the user is the one that a proxy has
// authenticated, and only the users of one team may act.
func Example() {
	if err := serveTwoUsers(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// user "", keys: 403
	// user "", bulk?do=requeue: 403
	// user "bert", keys: 200
	// user "bert", bulk?do=requeue: 403
}

func serveTwoUsers(ctx context.Context) error {
	db, err := sql.Open("sqlite", "file:dashboard_example?mode=memory&_txlock=immediate")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1) // SQLite has one writer, and this database ends with its connection
	if err := postbox.Migrate(ctx, postbox.Database{DB: db, Dialect: postbox.SQLite}); err != nil {
		return err
	}
	operator, err := admin.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, admin.Config{}, nil)
	if err != nil {
		return err
	}

	onCall := map[string]bool{"anna": true}
	authorise := func(r *http.Request) (dashboard.Access, error) {
		user := r.Header.Get("X-Authenticated-User") // the proxy sets it, and removes one that a client has sent
		if user == "" {
			return dashboard.Access{}, errors.New("the proxy has named no user")
		}
		return dashboard.Access{Actor: user, Read: true, Act: onCall[user]}, nil
	}
	board, err := dashboard.New(operator, dashboard.Config{Authorise: authorise, Title: "Shop, production"}, nil)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/postbox/", http.StripPrefix("/ops/postbox", board))

	for _, user := range []string{"", "bert"} {
		for _, page := range []string{"keys", "bulk?do=requeue"} {
			request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/ops/postbox/"+page, nil)
			request.Header.Set("X-Authenticated-User", user)
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, request)
			fmt.Printf("user %q, %s: %d\n", user, page, answer.Code)
		}
	}
	return nil
}
