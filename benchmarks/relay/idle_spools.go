package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// What a server does for processes that have nothing to do.
const (
	CPUShare   measure.Metric = "server CPU ms/s"
	LogAnHour  measure.Metric = "log MiB/hour"
	idleSpools                = 500
	// spoolsSettle is how long 500 forwarders need to take their lanes and to slow down.
	spoolsSettle = 20 * time.Second
	spoolClients = 20
)

// IdleSpools leaves the forwarders of many outboxes without work, on each server.
func IdleSpools() measure.Scenario {
	return measure.Scenario{
		Name:      "idle-spools",
		About:     "what a server does for 500 forwarders, each of an outbox of its own, that have nothing to do, with default settings",
		Needs:     measure.MariaDBVariable,
		MaxRounds: 1,
		Picture:   PerSecond,
		Contenders: []measure.Contender{
			{Name: "postgresql", Run: func(ctx context.Context, stage *measure.Stage) error {
				return watchSpools(ctx, stage, postbox.Database{DB: stage.DB, Dialect: postbox.PostgreSQL})
			}},
			{Name: "mariadb", Run: measure.MariaDB{}.Run(func(ctx context.Context, stage *measure.Stage, db *sql.DB) error {
				return watchSpools(ctx, stage, postbox.Database{DB: db, Dialect: postbox.MySQL})
			})},
		},
		// Each polls once a second, which is 500 statements, and renews its lease each five
		// seconds.
		Targets: []measure.Target{
			{Name: "idle-spools", Ours: "postgresql", Limit: 500, Metric: PerSecond, Lower: true, AtLeast: 0.8},
			{Name: "idle-spools", Ours: "mariadb", Limit: 500, Metric: PerSecond, Lower: true, AtLeast: 0.8},
		},
	}
}

// watchSpools starts the forwarders, and records what the server does.
func watchSpools(ctx context.Context, stage *measure.Stage, database postbox.Database) (err error) {
	database.DB.SetMaxOpenConns(spoolClients)
	database.DB.SetMaxIdleConns(spoolClients)
	if err := postbox.Migrate(ctx, database); err != nil {
		return err
	}
	for i := range stage.Scale(idleSpools, idleSpools/5) {
		fwd, ended, startErr := startOn(ctx, database, newSink(1, 0), forwarder.Config{Outbox: fmt.Sprint("idle ", i)})
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, fwd.Close(), <-ended) }()
	}
	<-time.After(spoolsSettle)
	if err := stage.Start(ctx); err != nil {
		return err
	}
	window := time.Duration(stage.Scale(int(idleWindow), int(idleWindow/2)))
	<-time.After(window)
	taken, err := stage.Taken(ctx)
	stage.Record(PerSecond, float64(taken.Statements)/window.Seconds())
	stage.Record(CPUShare, float64(taken.CPU.Milliseconds())/window.Seconds())
	stage.Record(LogAnHour, float64(taken.Log)/(1<<20)*float64(time.Hour)/float64(window))
	return err
}
