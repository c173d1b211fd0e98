package pgtail_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// about returns the findings about one thing.
func about(status pgtail.Status, subject string) (found []pgtail.Finding) {
	for _, f := range status.Findings {
		if f.About == subject {
			found = append(found, f)
		}
	}
	return found
}

func TestInspect_shows_who_reads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := pgtail.Config{DSN: w.DSN, Publication: w.publication()}
	status, err := pgtail.Inspect(t.Context(), w.Postbox(), config)
	require.NoError(t, err)
	require.False(t, status.Slot.Exists)
	require.Len(t, status.Findings, 1)
	require.Equal(t, pgtail.AboutReader, status.Findings[0].About)
	require.False(t, status.Findings[0].Problem, "forwarders poll")

	f := w.start(&broker{}, forwarder.Config{Tail: w.tail()})
	w.follows(f)
	status, err = pgtail.Inspect(t.Context(), w.Postbox(), config)
	require.NoError(t, err)
	require.Empty(t, status.Findings)
	require.True(t, status.Slot.Active)
	require.Positive(t, status.Slot.PID)
	require.Equal(t, "postgres", status.Slot.Role)
	require.NoError(t, pgtail.Check(t.Context(), w.Postbox(), config))
	f.stop(t)
}

// On PostgreSQL 17 and later standbys can keep the slot, unless the configuration says otherwise, and a second set-up changes it.
func TestSetupOutbox_makes_a_slot_for_failovers(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	inspect := func() pgtail.Status {
		status, err := pgtail.InspectOutbox(t.Context(), w.Postbox(), pgtail.OutboxConfig{})
		require.NoError(t, err)
		return status
	}
	status := inspect()
	can := status.Version >= 17
	require.Equal(t, can, status.Slot.Failover)
	require.Equal(t, can, w.failover())
	require.False(t, status.Slot.Synced)
	require.True(t, about(status, pgtail.AboutReader)[0].Problem, "messages wait in the log")

	config := w.outboxConfig()
	config.NoFailover = true
	require.NoError(t, pgtail.SetupOutbox(t.Context(), w.Postbox(), config))
	require.False(t, inspect().Slot.Failover)
	require.NoError(t, pgtail.SetupOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	require.Equal(t, can, inspect().Slot.Failover)
	require.Empty(t, about(inspect(), pgtail.AboutSlot))

	f := w.reader(&broker{})
	w.eventually(func() bool { return inspect().Slot.Active }, "a process reads")
	if err := pgtail.SetupOutbox(t.Context(), w.Postbox(), config); can { // for whose end the server would wait
		require.ErrorContains(t, err, "stop the forwarders for a moment")
	} else {
		require.NoError(t, err)
	}
	require.NoError(t, pgtail.SetupOutbox(t.Context(), w.Postbox(), w.outboxConfig()), "there is nothing to change")
	f.stop(t)
}

// failover is the flag of the server, which versions before 17 do not have.
func (w *world) failover() bool {
	return w.Count(w.T, "SELECT COALESCE((to_jsonb(s) ->> 'failover')::bool, FALSE)::int FROM pg_replication_slots s WHERE slot_name = "+permanentSlot) == 1
}

func TestInspectOutbox_finds_what_endangers_the_slot(t *testing.T) {
	t.Parallel()
	w, ctx := newOutboxWorld(t), t.Context()
	w.Exec(t, "DO $$ BEGIN EXECUTE 'DROP PUBLICATION ' || "+permanentSlot+"; END $$")
	status, err := pgtail.InspectOutbox(ctx, w.Postbox(), pgtail.OutboxConfig{}) // with an address it may find that there is a loss already
	require.NoError(t, err)
	require.Contains(t, about(status, pgtail.AboutPublication)[0].What, "is gone")
	if err := pgtail.SetupOutbox(ctx, w.Postbox(), w.outboxConfig()); err != nil {
		require.ErrorIs(t, err, pgtail.ErrSlotLost, "other tests of this database may have changed tables meanwhile")
	}
	status, err = pgtail.InspectOutbox(ctx, w.Postbox(), w.outboxConfig())
	require.NoError(t, err)
	require.Empty(t, about(status, pgtail.AboutPublication))

	require.True(t, w.dropSlot())
	status, err = pgtail.InspectOutbox(ctx, w.Postbox(), w.outboxConfig())
	require.NoError(t, err)
	lost := about(status, pgtail.AboutSlot)
	require.Len(t, lost, 1)
	require.True(t, lost[0].Problem)
	require.Contains(t, lost[0].What, "is gone: messages that were in the log alone may be lost")
	require.Contains(t, lost[0].Fix, "postbox log accept-loss")
}

// A set-up refuses while a loss is not accepted, so that is all there is to do, also for a publication that was made again.
func TestInspectOutbox_asks_for_no_set_up_that_a_loss_keeps_from_working(t *testing.T) {
	t.Parallel()
	w, ctx := newOutboxWorld(t), t.Context()
	w.onlyPublished()
	w.emit(keyed("lost", "key"))
	require.True(t, w.dropSlot())
	w.Exec(t, "SELECT pg_create_logical_replication_slot("+permanentSlot+", 'pgoutput')")
	w.Exec(t, "ALTER PUBLICATION "+w.permanentSlot()+" RENAME TO renamed_"+w.permanentSlot())
	w.Exec(t, "ALTER PUBLICATION renamed_"+w.permanentSlot()+" RENAME TO "+w.permanentSlot())
	require.ErrorIs(t, pgtail.SetupOutbox(ctx, w.Postbox(), w.outboxConfig()), pgtail.ErrSlotLost)
	status, err := pgtail.InspectOutbox(ctx, w.Postbox(), w.outboxConfig())
	require.NoError(t, err)
	require.Empty(t, about(status, pgtail.AboutPublication))
	lost := about(status, pgtail.AboutSlot)
	require.Len(t, lost, 1)
	require.Contains(t, lost[0].Fix, "postbox log accept-loss")
	require.NoError(t, acceptLoss(ctx, w.Postbox(), w.outboxConfig()))
	require.NoError(t, pgtail.CheckOutbox(ctx, w.Postbox(), w.outboxConfig()), "which mends the publication, too")
}

// DROP SCHEMA leaves the slot of its tables, for which the server keeps its log for ever.
func TestInspectOutbox_names_the_slot_of_tables_that_were_dropped(t *testing.T) {
	t.Parallel()
	w, ctx := newOutboxWorldAlone(t), t.Context()
	orphans := func() []pgtail.Finding {
		status, err := pgtail.InspectOutbox(ctx, w.Postbox(), w.outboxConfig())
		require.NoError(t, err)
		return about(status, pgtail.AboutSlot)
	}
	require.Empty(t, orphans())
	w.Exec(t, "CREATE SCHEMA other")
	other := w.Postbox()
	other.Schema = "other"
	require.NoError(t, postbox.Migrate(ctx, other))
	require.NoError(t, pgtail.SetupOutbox(ctx, other, w.outboxConfig()))
	require.Empty(t, orphans(), "the other tables are in use")
	w.Exec(t, "DROP SCHEMA other CASCADE")
	found := orphans()
	require.Len(t, found, 1)
	require.True(t, found[0].Problem)
	require.Contains(t, found[0].What, "were dropped")
	w.Exec(t, found[0].Fix)
	require.Empty(t, orphans())
	require.Equal(t, 1, w.Count(t, "SELECT COUNT(*) FROM pg_publication"), "and that of the tables that are there")
}

// AcceptLoss may be cut off while the server makes the new slot, which waits for open transactions. Until it is made, it is not known what it continues.
func TestAcceptLoss_that_was_cut_off_does_not_look_sound(t *testing.T) {
	t.Parallel()
	w, ctx := newOutboxWorld(t), t.Context()
	require.True(t, w.dropSlot())
	open, err := w.DB.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer func() { _ = open.Rollback() }()
	_, err = open.ExecContext(ctx, "SELECT pg_current_xact_id()")
	require.NoError(t, err)
	conn, err := w.DB.Conn(ctx) // the pool would try again on another connection
	require.NoError(t, err)
	made := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_create_logical_replication_slot("+permanentSlot+", 'pgoutput')")
		_ = conn.Close()
		made <- err
	}()
	w.eventually(func() bool {
		return w.Count(t, "SELECT COUNT(*) FROM pg_replication_slots WHERE active_pid IS NOT NULL AND slot_name = "+permanentSlot) == 1
	}, "the server makes the slot")

	status, err := pgtail.InspectOutbox(ctx, w.Postbox(), w.outboxConfig())
	require.NoError(t, err)
	slot := about(status, pgtail.AboutSlot)
	require.Len(t, slot, 1)
	require.True(t, slot[0].Problem)
	require.Contains(t, slot[0].What, "is still being made")
	require.ErrorContains(t, acceptLoss(ctx, w.Postbox(), w.outboxConfig()), "is still being made")

	require.NoError(t, open.Rollback())
	require.NoError(t, <-made)
	require.ErrorIs(t, pgtail.CheckOutbox(ctx, w.Postbox(), w.outboxConfig()), pgtail.ErrSlotLost)
	require.NoError(t, acceptLoss(ctx, w.Postbox(), w.outboxConfig()))
	require.NoError(t, pgtail.CheckOutbox(ctx, w.Postbox(), w.outboxConfig()))
}

// What is removed by force takes its messages with it. A process that reads cannot keep the slot.
func TestDiscardOutbox_removes_the_slot_of_a_process_that_reads(t *testing.T) {
	t.Parallel()
	w, ctx := newOutboxWorld(t), admin.ContextWithActor(t.Context(), "ada")
	b := &broker{}
	f := w.reader(b)
	w.emit(keyed("published", "key"))
	w.eventually(func() bool { return b.has("published") }, "it is published")
	require.NoError(t, pgtail.DiscardOutbox(ctx, w.Postbox(), w.outboxConfig()))
	require.Zero(t, w.Count(t, "SELECT COUNT(*) FROM pg_replication_slots WHERE slot_name = "+permanentSlot))
	require.NoError(t, pgtail.DiscardOutbox(ctx, w.Postbox(), w.outboxConfig()), "it can be run again")
	require.ErrorContains(t, pgtail.CheckOutbox(ctx, w.Postbox(), w.outboxConfig()), "run pgtail.SetupOutbox")
	w.eventually(func() bool { return f.log.count("run pgtail.SetupOutbox") > 0 }, "the forwarder says that the log is not set up")
	f.stop(t)

	a, err := admin.New(w.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	entries, err := a.Audit(ctx, admin.AuditFilter{Actor: "ada"})
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "log remove", entries[0].Action)
	require.Contains(t, entries[0].Subject, "slot postbox_")
}

// Several processes may set the log up at the same time, as when a service is deployed.
func TestSetup_by_several_processes_at_a_time(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, pgtail.Remove(t.Context(), w.Postbox(), w.publication()))
	const processes = 4
	ended := make(chan error, processes)
	for range processes {
		go func() { ended <- pgtail.Setup(t.Context(), w.Postbox(), w.publication()) }()
	}
	var all []error
	for range processes {
		all = append(all, <-ended)
	}
	require.NoError(t, errors.Join(all...))
	require.Equal(t, 4, w.tables())
}
