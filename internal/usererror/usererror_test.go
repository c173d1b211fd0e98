package usererror_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/usererror"
)

// evil is an error of which one method panics.
type evil struct{ method string }

func (e evil) fail(method string) {
	if e.method == method {
		panic(method + " panics")
	}
}

func (e evil) Error() string { e.fail("Error"); return "evil" }
func (e evil) Unwrap() error { e.fail("Unwrap"); return nil }

func TestChecked_replaces_an_error_that_panics(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		says []string
	}{
		"a nil pointer whose Error panics":  {(*pq.Error)(nil), []string{"a nil *pq.Error was returned as an error"}},
		"a nil pointer whose Unwrap panics": {(*net.OpError)(nil), []string{"a nil *net.OpError was returned as an error"}},
		"a nil pointer within a text":       {fmt.Errorf("read: %w", (*fs.PathError)(nil)), []string{"a nil *fs.PathError was returned as an error"}},
		"a nil pointer among others":        {errors.Join(io.EOF, (*pq.Error)(nil)), []string{"a nil *pq.Error"}},
		"a method Error":                    {evil{"Error"}, []string{"usererror_test.evil", "Error panics"}},
		"a method Unwrap":                   {evil{"Unwrap"}, []string{"usererror_test.evil", "Unwrap panics"}},
		"a method Error within":             {fmt.Errorf("%w %w", io.EOF, evil{"Error"}), []string{"Error panics"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checked := usererror.Checked(c.err)
			for _, text := range c.says {
				require.ErrorContains(t, checked, text)
			}
			require.NoError(t, errors.Unwrap(checked), "nothing of the error is left")
		})
	}
}

func TestChecked_leaves_an_error_as_it_is(t *testing.T) {
	t.Parallel()
	require.NoError(t, usererror.Checked(nil))
	for _, err := range []error{
		io.EOF, fmt.Errorf("read: %w", io.EOF), errors.Join(io.EOF, net.ErrClosed), &net.OpError{Op: "dial", Err: io.EOF}, evil{},
	} {
		require.Equal(t, err, usererror.Checked(err))
	}
}

func TestChecked_keeps_what_is_joined_a_thousand_times(t *testing.T) {
	t.Parallel()
	joined, wrapped := io.EOF, io.EOF
	for i := range 1000 {
		joined = errors.Join(joined, fmt.Errorf("message %d: %w", i, net.ErrClosed))
		wrapped = fmt.Errorf("%d: %w", i, wrapped)
	}
	require.ErrorIs(t, usererror.Checked(joined), io.EOF)
	require.ErrorIs(t, usererror.Checked(wrapped), io.EOF)
	checked := usererror.Checked(errors.Join(joined, evil{"Error"}))
	require.NotErrorIs(t, checked, io.EOF)
	require.ErrorContains(t, checked, "usererror_test.evil")
}
