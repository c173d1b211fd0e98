package pgtail_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	process "os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

const (
	// victimVariable makes the program of these tests a forwarder that a message kills. It has the driver and the address of the database.
	victimVariable = "POSTBOX_PGTAIL_VICTIM"
	// killed is the exit code of that program when the message has killed it.
	killed = 77
	// poison is the id of the message.
	poison = "poison"
	// victimAttempts is how many attempts a message has.
	victimAttempts = 2
)

// runVictim runs a forwarder of messages in the log, which prints the ids of those that it publishes. It ends when its standard input does.
func runVictim(address string) int {
	driver, dsn, _ := strings.Cut(address, " ")
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return failedVictim(err)
	}
	reader, err := pgtail.NewOutbox(pgtail.OutboxConfig{DSN: dsn})
	if err != nil {
		return failedVictim(err)
	}
	deadly := publisherFunc(func(_ string, messages ...*message.Message) error {
		for _, m := range messages {
			if m.UUID == poison {
				os.Exit(killed) // nothing is done any more, as with SIGKILL
			}
			_, _ = fmt.Fprintln(os.Stdout, m.UUID)
		}
		return nil
	})
	f, err := forwarder.New(postbox.Database{DB: db, Dialect: postbox.PostgreSQL}, deadly, forwarder.Config{
		Tail: reader, Lease: time.Second, Retry: postbox.RetryProfile{Base: time.Millisecond, Cap: time.Millisecond, Attempts: victimAttempts},
	}, watermill.NewStdLoggerWithOut(os.Stderr, false, false))
	if err != nil {
		return failedVictim(err)
	}
	if err := f.Run(context.Background()); err != nil {
		return failedVictim(err)
	}
	return 0
}

func failedVictim(err error) int {
	_, _ = fmt.Fprintln(os.Stderr, err)
	return 1
}

// A process that publishes a message without a row counts no start. If the message kills it, the next process stores it, since rows count starts.
// Also covers F5.
func TestOutbox_G2_a_message_that_kills_each_process_becomes_a_dead_letter(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	w.known(&broker{})
	var output bytes.Buffer
	run := func() (code int) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		program := process.CommandContext(ctx, os.Args[0]) //nolint:gosec // this test itself
		program.Env = append(os.Environ(), victimVariable+"="+w.Driver+" "+w.DSN)
		program.Stdout, program.Stderr = &output, &output
		require.NoError(t, program.Start())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = program.Wait()
		}()
		w.eventually(func() bool {
			select {
			case <-ended:
				return true
			default:
				return w.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters") > 0 && w.rows() == 0
			}
		}, "it is killed, or all messages are done")
		stop()
		<-ended
		return program.ProcessState.ExitCode()
	}
	w.emit(keyed(poison, "key"), keyed("behind", "key"), keyed("other", "another"))
	require.Equal(t, killed, run(), "%s", &output)
	require.Zero(t, w.stored(), "it was published without a row")
	deaths := 1
	for code := run(); code == killed; code = run() {
		deaths++
		require.LessOrEqual(t, deaths, victimAttempts+2, "one start without a row, one that is not suspected, and those that are counted")
	}
	require.Equal(t, 1, w.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE message_id = ?", []byte(poison)), "%s", &output)
	said := output.String()
	require.Contains(t, said, "behind\n")
	require.Contains(t, said, "other\n")
	require.NotContains(t, said, "DATA RACE")
}
