package command_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
)

// A server goes on making a slot for a process that has ended. Publishers could write then, and no forwarder could read.
func TestLog_setup_says_for_what_it_waits_and_can_be_interrupted(t *testing.T) {
	t.Parallel()
	b := logBench(t)
	skipBefore14(b)
	slot := b.logLines(command.ExitFound, "log", "check", "--without-rows")["slot"].Slot.Name
	open := b.openTransaction()
	run := b.begin("waits for the end of all open transactions", "log", "setup", "--without-rows")
	pid := b.database.Count(t, "SELECT active_pid FROM pg_replication_slots WHERE slot_name = ?", slot)
	run.interrupt()
	require.NotEqual(t, command.ExitOK, <-run.code)
	require.Zero(t, b.database.Count(t, "SELECT COUNT(*) FROM pg_replication_slots WHERE slot_name = ?", slot), "the server has given it up, although the transaction is open")
	said := run.said.text.String()
	require.Regexp(t, fmt.Sprintf(`the slot %s is still being made: process %d of the server waits for the end of all open transactions, and that of process \d+ of the server is open \(role `, slot, pid), said)
	require.Contains(t, said, "run the command again")
	require.NoError(t, open.Rollback())
	b.logLines(command.ExitOK, "log", "setup", "--without-rows")
}

// An open transaction may have published.
func TestLog_remove_says_for_what_it_waits(t *testing.T) {
	t.Parallel()
	b := logBench(t)
	skipBefore14(b)
	b.logLines(command.ExitOK, "log", "setup", "--without-rows")
	open := b.openTransaction()
	run := b.begin("Postbox waits for the end of all open transactions of the server", "log", "remove", "--without-rows", "--yes")
	require.Empty(t, run.code)
	require.NoError(t, open.Rollback())
	require.Equal(t, command.ExitOK, <-run.code, run.said.text.String())
	require.Regexp(t, `, and that of process \d+ of the server is open \(role `, run.said.text.String())
}

// openTransaction begins a transaction that has written something.
func (b *bench) openTransaction() *sql.Tx {
	b.Helper()
	open, err := b.database.DB.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = open.Rollback() })
	_, err = open.ExecContext(b.Context(), "SELECT pg_current_xact_id()")
	require.NoError(b, err)
	return open
}

// begun is a command that runs.
type begun struct {
	said      *toldOutput
	code      chan int
	interrupt context.CancelFunc
}

// begin starts a command, and waits until it says what is wanted.
func (b *bench) begin(wanted string, args ...string) begun {
	b.Helper()
	said := &toldOutput{wanted: wanted, told: make(chan struct{})}
	ctx, interrupt := context.WithCancel(b.Context())
	b.Cleanup(interrupt)
	root := command.New(command.Options{LookupEnv: func(name string) (string, bool) { value, ok := b.environment()[name]; return value, ok }})
	root.SetArgs(args)
	root.SetOut(io.Discard)
	root.SetErr(said)
	run := begun{said: said, code: make(chan int, 1), interrupt: interrupt}
	go func() { run.code <- command.Execute(ctx, root) }()
	select {
	case <-said.told:
	case <-time.After(logPatience):
		require.Fail(b, "it says nothing")
	}
	return run
}

// toldOutput keeps what a command says, and tells when that has the wanted text. The text is read when the command has ended.
type toldOutput struct {
	wanted string
	told   chan struct{}
	text   strings.Builder
}

// Write implements [io.Writer].
func (o *toldOutput) Write(p []byte) (int, error) {
	before := strings.Contains(o.text.String(), o.wanted)
	o.text.Write(p)
	if !before && strings.Contains(o.text.String(), o.wanted) {
		close(o.told)
	}
	return len(p), nil
}
