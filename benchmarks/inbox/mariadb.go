package inbox

import (
	"context"
	"database/sql"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/accounts"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// addedRounds are those of the comparisons that are made beside the main ones.
const addedRounds = 3

// OnceMariaDB handles messages with one update each on MariaDB.
func OnceMariaDB() measure.Scenario {
	ours := func(style style) measure.Run {
		return onMariaDBSite(func(ctx context.Context, stage *measure.Stage, at site) error {
			return at.handleOnce(ctx, stage, middleware.InboxConfig{}, style)
		})
	}
	byHand := func(style style) measure.Run {
		return onMariaDBSite(func(ctx context.Context, stage *measure.Stage, at site) error {
			return at.onceByHand(ctx, stage, style, style, nil)
		})
	}
	return measure.Scenario{
		Name:      "inbox-mariadb",
		About:     "a handler that makes one update, 16 at a time, on MariaDB",
		Needs:     measure.MariaDBVariable,
		Floor:     "by-hand-prepared",
		MaxRounds: addedRounds,
		Contenders: []measure.Contender{
			{Name: "ours", Run: ours(plain)},
			{Name: "by-hand", Run: byHand(plain)},
			{Name: "ours-prepared", Run: ours(prepared)},
			{Name: "by-hand-prepared", Run: byHand(prepared)},
		},
		Targets: []measure.Target{{Name: "inbox-mariadb", Ours: "ours-prepared", Other: "by-hand-prepared", AtLeast: 0.9}},
	}
}

// onMariaDBSite runs a contender on a database of MariaDB, which has one handle for everything.
func onMariaDBSite(run func(ctx context.Context, stage *measure.Stage, at site) error) measure.Run {
	return measure.MariaDB{}.Run(func(ctx context.Context, stage *measure.Stage, db *sql.DB) error {
		return run(ctx, stage, site{accounts.OnMariaDB(), db, postbox.Database{DB: db, Dialect: postbox.MySQL}, deliveries(stage)}.shorter())
	})
}
