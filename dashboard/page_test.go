package dashboard_test

import (
	"net/http"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
)

// The code of docs/dashboard.md, which needs only to compile.
var _ = pageMount

type pageUser struct {
	Name            string
	OnCall, IsAdmin bool
}

type pageSessions struct{}

func (pageSessions) User(*http.Request) (pageUser, error) { return pageUser{}, nil }

func pageMount(mux *http.ServeMux, database postbox.Database, sessions pageSessions, logger watermill.LoggerAdapter) error {
	operator, err := admin.New(database, admin.Config{}, logger)
	if err != nil {
		return err
	}
	board, err := dashboard.New(operator, dashboard.Config{
		Title: "Shop, production",
		Authorise: func(r *http.Request) (dashboard.Access, error) {
			user, err := sessions.User(r) // your login
			if err != nil {
				return dashboard.Access{}, err
			}
			return dashboard.Access{Actor: user.Name, Read: true, Act: user.OnCall, Edit: user.IsAdmin}, nil
		},
	}, logger)
	if err != nil {
		return err
	}
	mux.Handle("/ops/postbox/", http.StripPrefix("/ops/postbox", board))
	return nil
}
