package command_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// programVariable makes the test binary run the program with these arguments, one a line, instead
// of its tests.
const programVariable = "POSTBOX_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if args := os.Getenv(programVariable); args != "" {
		root := command.New(command.Options{LookupEnv: os.LookupEnv})
		root.SetArgs(strings.Split(args, "\n"))
		os.Exit(command.Execute(context.Background(), root))
	}
	goleak.VerifyTestMain(m)
}

// A process that is killed in the middle of a bulk action has done its finished transactions, and
// nothing of the one that it was in. The command goes on when it is run again, and each letter is
// requeued once. On a server the process waits for a lock when it is killed.
func TestBulk_of_a_process_that_is_killed_is_done_once(t *testing.T) {
	t.Parallel()
	const n, locked = 250, 150
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		for i := range n {
			b.letter(fmt.Sprintf("d-%03d", i), "orders", "card declined")
		}
		release := func() {}
		if database.Dialect != postbox.SQLite { // which has one writer, so the process would not begin
			tx, err := database.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(t.Context(), database.Bind("UPDATE postbox_dead_letters SET attempts = attempts + 1 WHERE id = ?"), locked)
			require.NoError(t, err)
			release = func() { require.NoError(t, tx.Rollback()) }
		}
		args := []string{"dead", "requeue", "--topic", "orders", "--yes"}
		b.kill("100 dead letters requeued", args...)
		release()

		left := 0
		require.Eventually(t, func() bool { // the server notices the end of the process
			left = len(b.letters(""))
			return left+database.Count(t, "SELECT COUNT(*) FROM postbox_messages") == n
		}, time.Minute, testdb.PollPause)
		require.LessOrEqual(t, left, n-100, "what is done is done")
		require.Zero(t, (n-left)%100*left, "a transaction has a hundred letters or none")
		if database.Dialect != postbox.SQLite {
			require.Positive(t, left, "it was killed in the middle")
		}
		b.ok(args...)
		require.Empty(t, b.letters(""))
		require.Equal(t, n, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
		require.Equal(t, n, database.Count(t, "SELECT COUNT(DISTINCT message_id) FROM postbox_messages"))
		require.Equal(t, 2, strings.Count(b.ok("audit", "--action", "requeue", "-o", "jsonl"), "\n"), "both are in the audit log")
	})
}

// kill runs the program in a process of its own, and kills it when it has printed the text.
func (b *bench) kill(text string, args ...string) {
	b.Helper()
	program := exec.CommandContext(b.Context(), os.Args[0]) //nolint:gosec // this test itself
	program.Env = append(os.Environ(), programVariable+"="+strings.Join(args, "\n"))
	for name, value := range b.environment() {
		program.Env = append(program.Env, name+"="+value)
	}
	errs, err := program.StderrPipe()
	require.NoError(b, err)
	require.NoError(b, program.Start())
	lines, printed := bufio.NewScanner(errs), false
	for !printed && lines.Scan() {
		printed = strings.Contains(lines.Text(), text)
	}
	require.NoError(b, program.Process.Kill())
	require.Error(b, program.Wait())
	require.True(b, printed, "the program has not printed %q", text)
}
