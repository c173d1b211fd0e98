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

// The exit codes of a program: see the documentation of the package.
const (
	codeOK      = 0
	codeError   = 1
	codeUsage   = 2
	codeFound   = 3
	codeStopped = 4
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
		return codeOK
	}
	code := codeError
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		code = exit.code
	case errors.Is(err, admin.ErrInvalid):
		code = codeUsage
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		code = codeStopped
	}
	fmt.Fprintf(root.ErrOrStderr(), "postbox: %s\n", lines(withoutAddresses(err.Error())))
	if code == codeUsage {
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

func usage(err error) error { return &exitError{codeUsage, err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

func foundf(format string, args ...any) error {
	return &exitError{codeFound, fmt.Errorf(format, args...)}
}

func stoppedf(format string, args ...any) error {
	return &exitError{codeStopped, fmt.Errorf(format, args...)}
}
