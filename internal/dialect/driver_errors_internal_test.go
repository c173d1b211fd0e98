package dialect

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"
)

// mattnError has the fields of mattn/go-sqlite3's Error, which needs cgo and so is not among our modules.
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

// What a statement meets behind a pooler in transaction mode names the page that helps, and nothing else does.
func TestHintAtPooler_names_the_page_for_the_errors_of_a_pooler(t *testing.T) {
	t.Parallel()
	for state, hint := range map[string]bool{"26000": true, "42P05": true, "08P01": true, "42P01": false, "57014": false, "08006": false} {
		for _, err := range []error{&pq.Error{Code: pq.ErrorCode(state)}, fmt.Errorf("it: %w", &pgconn.PgError{Code: state})} {
			hinted := HintAtPooler(err)
			require.ErrorIs(t, hinted, err)
			require.Equal(t, hint, strings.Contains(hinted.Error(), "docs/poolers.md"), state)
		}
	}
	require.NoError(t, HintAtPooler(nil))
}
