package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// answerDeadline is how long a server may take for one step of a failover.
const answerDeadline = 30 * time.Second

const (
	reload       = "SELECT pg_reload_conf()"
	stopReceiver = "ALTER SYSTEM SET primary_conninfo = ''"
)

// others are the servers but the primary.
func (p *Postgres) others() []*node {
	return slices.DeleteFunc(slices.Clone(p.nodes), func(n *node) bool { return n == p.primary })
}

// Sever waits until every standby has all that the primary has committed so far, and then cuts them
// off: from then on they lag, and an asynchronous failover loses whatever the primary confirms.
func (p *Postgres) Sever(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerDeadline)
	defer cancel()
	if err := p.catchUp(ctx); err != nil {
		return err
	}
	for _, n := range p.others() {
		if err := p.exec(ctx, n, stopReceiver, reload); err != nil {
			return err
		}
	}
	for _, n := range p.others() {
		err := await(ctx, func() (bool, error) {
			return ask[bool](ctx, p, n, "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_wal_receiver)")
		})
		if err != nil {
			return fmt.Errorf("%s still receives: %w", n.name, err)
		}
	}
	return nil
}

// catchUp waits until every standby has replayed what the primary has written.
func (p *Postgres) catchUp(ctx context.Context) error {
	position, err := ask[string](ctx, p, p.primary, "SELECT pg_current_wal_flush_lsn()::text")
	if err != nil {
		return err
	}
	for _, n := range p.others() {
		err := await(ctx, func() (bool, error) {
			return ask[bool](ctx, p, n, "SELECT COALESCE(pg_last_wal_replay_lsn() >= '"+position+"'::pg_lsn, false)")
		})
		if err != nil {
			return fmt.Errorf("%s does not catch up: %w", n.name, err)
		}
	}
	return nil
}

// Synchronize lets every commit wait until one of the standbys has it on its disk, and returns once
// everything that was confirmed before is there too: from then on a failover loses nothing.
func (p *Postgres) Synchronize(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerDeadline)
	defer cancel()
	err := p.exec(ctx, p.primary, "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'", reload)
	if err != nil {
		return err
	}
	err = await(ctx, func() (bool, error) {
		return ask[bool](ctx, p, p.primary,
			"SELECT current_setting('synchronous_standby_names') <> '' AND count(*) FILTER (WHERE sync_state = 'quorum') = 2 FROM pg_stat_replication")
	})
	if err != nil {
		return fmt.Errorf("the standbys do not become synchronous: %w", err)
	}
	return p.catchUp(ctx)
}

// Asynchronize lets commits wait for no standby any more, as at the beginning.
func (p *Postgres) Asynchronize(ctx context.Context) error {
	return p.exec(ctx, p.primary, "ALTER SYSTEM RESET synchronous_standby_names", reload)
}

// Promote makes that standby the primary which has received the most. The old primary must have
// been stopped; it stays so until [Postgres.Rebuild], as does the other standby as it is. The new
// primary waits for no standby.
func (p *Postgres) Promote(ctx context.Context) error {
	if p.primary.server != nil {
		return errors.New("the old primary still runs, and two of them would both take writes")
	}
	ctx, cancel := context.WithTimeout(ctx, answerDeadline)
	defer cancel()
	best, err := p.mostAdvanced(ctx)
	if err != nil {
		return err
	}
	promoted, err := ask[bool](ctx, p, best, "SELECT pg_promote()")
	if err == nil && !promoted {
		err = fmt.Errorf("%s is not promoted in time", best.name)
	}
	if err != nil {
		return err
	}
	p.primary = best
	// Its settings are those of a standby, or say that commits wait for standbys that are gone. All
	// others are on its command line.
	return p.exec(ctx, best, "ALTER SYSTEM RESET ALL", reload)
}

func (p *Postgres) mostAdvanced(ctx context.Context) (best *node, err error) {
	most := int64(-1)
	for _, n := range p.others() {
		received, err := ask[int64](ctx, p, n,
			"SELECT (GREATEST(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn)::bigint")
		if err != nil {
			return nil, err
		}
		if received > most {
			best, most = n, received
		}
	}
	return best, nil
}

// Backup copies the primary while it runs. Everything that was confirmed before the call is in the
// copy. It replaces the copy of an earlier call.
func (p *Postgres) Backup() error { return p.copyTo(p.work.path("backup")) }

// Restore replaces the data of the primary, which must have been stopped, with the copy of the last
// [Postgres.Backup], and starts it. The standbys keep what they have until [Postgres.Rebuild].
func (p *Postgres) Restore(ctx context.Context) error {
	if p.primary.server != nil {
		return errors.New("the primary still runs")
	}
	if err := os.RemoveAll(p.data(p.primary)); err != nil {
		return err
	}
	if err := os.Rename(p.work.path("backup"), p.data(p.primary)); err != nil {
		return err
	}
	return p.Start(ctx)
}
