package driver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/testcluster"
	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
	"github.com/postbox-go/watermill-postbox/proof/torture/schedule"
)

// absence is the least time for which no process reaches a database while another takes its place:
// long enough that each process writes down what the old one had still confirmed.
const absence = 2 * time.Second

// startCluster starts a database that can fail over, if such faults are to happen. They are left
// out where none can run.
func (r *run) startCluster(ctx context.Context) error {
	if !slices.ContainsFunc(r.Kinds, schedule.ReplacesDatabase) {
		return nil
	}
	if err := testcluster.PostgresAvailable(); err != nil {
		r.say("no failover and no restore: %s", err)
		r.Kinds = slices.DeleteFunc(slices.Clone(r.Kinds), schedule.ReplacesDatabase)
		return nil
	}
	r.say("starting a PostgreSQL primary with two standbys")
	var err error
	r.cluster, err = testcluster.StartPostgres(ctx)
	return err
}

// stopDatabase stops the database while the function runs.
func (r *run) stopDatabase(immediate bool, during func()) error {
	if r.cluster == nil {
		return r.services.outage("postgres", immediate, during)
	}
	r.services.stopped["postgres"].Lock()
	defer r.services.stopped["postgres"].Unlock()
	if err := r.cluster.Stop(immediate); err != nil {
		return err
	}
	during()
	return r.cluster.Start(context.Background()) // a fault that has begun is undone, whatever becomes of the run
}

// replaceDatabase puts another server, or older data, in the place of the database, and leads all
// processes there.
func (r *run) replaceDatabase(ctx context.Context, f schedule.Fault, last func()) error {
	r.services.stopped["postgres"].Lock()
	defer r.services.stopped["postgres"].Unlock()
	ended := ctx
	ctx = context.WithoutCancel(ctx) // what has begun comes to its end
	failover := checker.Failover{Kind: string(f.Kind), Lossless: f.Kind == schedule.FailoverSync, Since: time.Now()}
	before, err := r.holdings(ctx)
	if err != nil {
		return err // the database is away, and nothing has happened yet
	}
	takeOver := r.cluster.Promote
	switch f.Kind {
	case schedule.FailoverSync:
		if err = r.cluster.Synchronize(ctx); err == nil {
			before, err = r.holdings(ctx)
		}
	case schedule.Restore:
		takeOver = r.cluster.Restore
		err = r.cluster.Backup()
	default:
		err = r.cluster.Sever(ctx)
	}
	if err == nil {
		last()
		err = r.exchange(ctx, &failover, before, takeOver)
	}
	if err == nil && ended.Err() == nil {
		err = r.cluster.Rebuild(ctx)
	}
	if err != nil {
		r.fail(err)
	}
	return nil
}

// exchange stops the database, lets another one take over, and moves the clients.
func (r *run) exchange(ctx context.Context, failover *checker.Failover, before checker.Holdings, takeOver func(context.Context) error) error {
	var err error
	if failover.Leases, err = direct(ctx, r, checker.ReadLeases); err != nil {
		return err
	}
	if err := r.cluster.Stop(true); err != nil {
		return err
	}
	r.cluster.Relay.Cut()
	stopped := time.Now()
	if err := takeOver(ctx); err != nil {
		return err
	}
	if failover.Has, err = r.holdings(ctx); err != nil {
		return err
	}
	if err := failover.Has.Follows(before); err != nil {
		return err
	}
	wait(ctx, time.Until(stopped.Add(absence)))
	failover.Moved = time.Now()
	r.mu.Lock()
	r.failovers = append(r.failovers, *failover)
	r.mu.Unlock()
	r.cluster.Relay.Move(r.cluster.Address())
	r.say("          %s: clients reach the new primary after %.1f s", failover.Kind, time.Since(stopped).Seconds())
	return nil
}

func (r *run) holdings(ctx context.Context) (checker.Holdings, error) {
	return direct(ctx, r, checker.ReadHoldings)
}

// direct asks the primary past the relay.
func direct[T any](ctx context.Context, r *run, ask func(ctx context.Context, db *sql.DB) (T, error)) (answer T, err error) {
	db, err := sql.Open("postgres", r.cluster.PrimaryDSN(r.databaseName))
	if err != nil {
		return answer, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	answer, err = ask(ctx, db)
	if err != nil {
		err = fmt.Errorf("ask the primary: %w", err)
	}
	return answer, err
}

// lost tells which works the failovers so far have lost for good, by what the processes have
// written down until now.
func (r *run) lost() (func(consumer, message string) bool, error) {
	r.mu.Lock()
	losses := len(r.failovers)
	r.mu.Unlock()
	if losses == 0 {
		return func(string, string) bool { return false }, nil
	}
	evidence, err := r.witnesses()
	return checker.LostWorks(evidence), err
}

// witnesses is what the processes wrote down, and what happened to them.
func (r *run) witnesses() (checker.Evidence, error) {
	records, err := history.Read(r.direct.Histories)
	r.mu.Lock()
	defer r.mu.Unlock()
	return checker.Evidence{
		Flows: ledger.Flows, Records: records,
		Failovers: slices.Clone(r.failovers), Troubles: slices.Clone(r.troubles),
	}, err
}
