package deferred

import (
	"context"
	"database/sql"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// site is a database on which queues are worked off.
type site struct {
	words

	// setup is a handle for what is not measured.
	setup *sql.DB
	// database is the measured database. It has metrics only if the contender does.
	database postbox.Database
	// stored are the deliveries that a contender stores.
	stored int
}

// onStage is the site of the benchmark's own PostgreSQL.
func onStage(stage *measure.Stage) site {
	return site{onPostgres, stage.Setup, postbox.Database{DB: stage.DB, Dialect: postbox.PostgreSQL}, deliveries(stage)}
}

// filling describes it with the other handle.
func (s site) filling() postbox.Database { return postbox.Database{DB: s.setup, Dialect: s.Dialect} }

// contender does its work on a site.
type contender func(ctx context.Context, stage *measure.Stage, at site) error

// onPostgresSite runs a contender there.
func onPostgresSite(run contender) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error { return run(ctx, stage, onStage(stage)) }
}

// onMariaDBSite runs a contender on a database of MariaDB, which has one handle for everything.
func onMariaDBSite(reach measure.MariaDB, run contender) measure.Run {
	return reach.Run(func(ctx context.Context, stage *measure.Stage, db *sql.DB) error {
		return run(ctx, stage, site{onMariaDB, db, postbox.Database{DB: db, Dialect: postbox.MySQL}, deliveries(stage) / 2}) // beside the main comparison
	})
}
