package pgtail_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// Nothing is published while another program reads from the slot.
func TestInspectOutbox_distinguishes_another_program_from_a_forwarder(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	inspect := func() pgtail.Status {
		status, err := pgtail.InspectOutbox(t.Context(), w.Postbox(), w.outboxConfig())
		require.NoError(t, err)
		return status
	}
	f := w.reader(&broker{})
	w.eventually(func() bool { return inspect().Slot.Active }, "the forwarder reads")
	require.Empty(t, about(inspect(), pgtail.AboutReader))
	require.NoError(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), w.outboxConfig()))
	f.stop(t)

	w.eventually(func() bool { return !inspect().Slot.Active }, "the server notices its end")
	other := w.replicate(inspect().Slot.Name)
	found := about(inspect(), pgtail.AboutReader)
	require.Len(t, found, 1)
	require.True(t, found[0].Problem)
	require.Contains(t, found[0].What, `none of Postbox, or of an earlier version: process`)
	require.Contains(t, found[0].What, `application_name "another"`)
	require.Contains(t, found[0].Fix, "SELECT pg_terminate_backend(active_pid)")
	require.ErrorContains(t, pgtail.CheckOutbox(t.Context(), w.Postbox(), w.outboxConfig()), "none of Postbox")
	require.NoError(t, other.Close(t.Context()))
}

// replicate reads from a slot as another program does.
func (w *world) replicate(slot string) *pgconn.PgConn {
	w.Helper()
	config, err := pgconn.ParseConfig(w.DSN)
	require.NoError(w, err)
	config.RuntimeParams["replication"], config.RuntimeParams["application_name"] = "database", "another"
	conn, err := pgconn.ConnectConfig(w.Context(), config)
	require.NoError(w, err)
	conn.Frontend().Send(&pgproto3.Query{String: fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL 0/0 (proto_version '1', publication_names '%s')", slot, slot)})
	require.NoError(w, conn.Frontend().Flush())
	message, err := conn.ReceiveMessage(w.Context())
	require.NoError(w, err)
	require.IsType(w, &pgproto3.CopyBothResponse{}, message)
	return conn
}
