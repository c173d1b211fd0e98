package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// The exit codes of a program.
const (
	// ExitOK: the command has done what it was asked for.
	ExitOK = 0
	// ExitError: an error, for example of the database. An action on many may have been done in
	// part, and the output says how far it got.
	ExitError = 1
	// ExitUsage: a flag, an argument or the configuration is wrong, or a confirmation is needed and
	// there is no terminal. Nothing was done.
	ExitUsage = 2
	// ExitFound: the command worked, and the answer is no. A check failed, doctor has found
	// something, an outbox is not empty, or migrations are missing.
	ExitFound = 3
	// ExitStopped: the operator stopped the command, by a signal or by an answer. The output says
	// how far it got.
	ExitStopped = 4
)

// Execute runs the command with the arguments of the program, prints the error if there is one, and
// returns the exit code. The first SIGINT, SIGTERM or SIGHUP ends the command after the transaction
// that is running, and a second one ends the program at once.
func Execute(ctx context.Context, root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	code := ExitError
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		code = exit.code
	case errors.Is(err, admin.ErrInvalid):
		code = ExitUsage
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		code = ExitStopped
	}
	fmt.Fprintf(root.ErrOrStderr(), "postbox: %s\n", lines(withoutAddresses(err.Error())))
	if code == ExitUsage {
		fmt.Fprintf(root.ErrOrStderr(), "Run \"%s --help\" for the usage.\n", cmd.CommandPath())
	}
	return code
}

var (
	quotedAddress  = regexp.MustCompile(`"(?:[^"\\]|\\.)*://(?:[^"\\]|\\.)*"`)
	flaggedAddress = regexp.MustCompile(`( in -)\S*://.*`)
)

// withoutAddresses takes addresses out of an error that quotes what the user wrote: one in the
// wrong place, with a password, must not reach a log.
func withoutAddresses(text string) string {
	return flaggedAddress.ReplaceAllString(quotedAddress.ReplaceAllString(text, `"***"`), "$1***")
}

// exitError is an error with the exit code that it leads to.
type exitError struct {
	code int
	err  error
}

// Error returns the text of the error.
func (e *exitError) Error() string { return e.err.Error() }

// Unwrap returns the error.
func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error { return &exitError{ExitUsage, err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

func foundf(format string, args ...any) error {
	return &exitError{ExitFound, fmt.Errorf(format, args...)}
}

func stoppedf(format string, args ...any) error {
	return &exitError{ExitStopped, fmt.Errorf(format, args...)}
}
