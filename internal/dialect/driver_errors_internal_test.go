package dialect

import (
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// mattnError has the fields of mattn/go-sqlite3's Error, which needs cgo and so is not among our
// modules.
type mattnError struct {
	Code         int
	ExtendedCode mattnExtended
}

type mattnExtended int

func (e mattnError) Error() string { return "sqlite" }

func TestReadExtendedCode_of_a_driver_with_fields(t *testing.T) {
	t.Parallel()
	said, ok := readExtendedCode(nil, reflect.ValueOf(mattnError{Code: 5, ExtendedCode: 5 | 2<<8}))
	require.True(t, ok)
	said.of = SQLite
	require.Equal(t, Conflict, said.kind())

	require.Equal(t, Unavailable, report{of: SQLite, number: 7}.kind(), "without memory, SQLite rolls back as it does on a full disk")

	// A driver that has changed is no driver that we know.
	_, ok = readExtendedCode(nil, reflect.ValueOf(struct{ ExtendedCode string }{}))
	require.False(t, ok)
	_, ok = readState(nil, reflect.ValueOf(struct{ Code int }{}))
	require.False(t, ok)
	_, ok = readNumber(nil, reflect.ValueOf(struct{}{}))
	require.False(t, ok)
	_, ok = readCode(errors.New("no code"), reflect.Value{})
	require.False(t, ok)
}
