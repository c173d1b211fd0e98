package testcluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// PostgresVersion is the major version of the servers that [StartPostgres] starts.
func PostgresVersion(ctx context.Context) (int, error) {
	bin, err := postgresBin()
	if err != nil {
		return 0, err
	}
	output, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output() //nolint:gosec // of this machine
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	var major int
	if _, err := fmt.Sscanf(string(output), "postgres (PostgreSQL) %d", &major); err != nil {
		return 0, fmt.Errorf("the version of PostgreSQL is unknown: %w", err)
	}
	return major, nil
}

// KeepSlots lets the standbys keep the logical slots that are made for failovers, and the primary send no more of its log than they have. It needs
// PostgreSQL 17, and lasts until a failover.
func (p *Postgres) KeepSlots(ctx context.Context) error {
	var names []string
	for _, n := range p.others() {
		names = append(names, n.name)
		if err := p.exec(ctx, p.primary, fmt.Sprintf("SELECT pg_create_physical_replication_slot('%s')", n.name)); err != nil {
			return err
		}
		err := p.exec(ctx, n,
			fmt.Sprintf("ALTER SYSTEM SET primary_conninfo = '%s dbname=postgres'", p.conninfo(n)),
			fmt.Sprintf("ALTER SYSTEM SET primary_slot_name = '%s'", n.name),
			"ALTER SYSTEM SET hot_standby_feedback = on", "ALTER SYSTEM SET sync_replication_slots = on", reload)
		if err != nil {
			return err
		}
	}
	return p.exec(ctx, p.primary, fmt.Sprintf("ALTER SYSTEM SET synchronized_standby_slots = '%s'", strings.Join(names, ", ")), reload)
}

// SlotsKept reports whether every standby has the logical slots of the primary that are made for failovers. A standby takes a slot over when its
// reader has confirmed a later place in the log than the one from which the standby has kept its own, so call it while messages go through.
func (p *Postgres) SlotsKept(ctx context.Context) (bool, error) {
	made, err := ask[int](ctx, p, p.primary, "SELECT COUNT(*) FROM pg_replication_slots WHERE failover")
	if err != nil {
		return false, err
	}
	// A reader can confirm a place only if the log says there which transactions run.
	if err := p.exec(ctx, p.primary, "SELECT pg_log_standby_snapshot()"); err != nil {
		return false, err
	}
	for _, n := range p.others() {
		kept, err := ask[int](ctx, p, n, "SELECT COUNT(*) FROM pg_replication_slots WHERE synced AND NOT temporary")
		if err != nil || kept < made {
			return false, err
		}
	}
	return true, nil
}
