package dialect_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

func TestHintAtPooler_adds_its_hint_once_and_by_code(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&pq.Error{Code: "26000", Message: "unnamed prepared statement does not exist"},
		&pgconn.PgError{Code: "42P05", Message: `prepared statement "stmtcache_1" already exists`},
		&pq.Error{Code: "08P01", Message: `bind message supplies 2 parameters, but prepared statement "" requires 1`},
	} {
		hinted := dialect.HintAtPooler(fmt.Errorf("claim: %w", err))
		require.ErrorIs(t, hinted, err)
		require.EqualError(t, hinted, "claim: "+err.Error()+" ("+dialect.PoolerHint+")")
		outer := fmt.Errorf("inbox: %w", hinted)
		require.Equal(t, outer, dialect.HintAtPooler(outer))
	}
	for _, err := range []error{
		nil,
		errors.New("prepared statement does not exist"),
		&pq.Error{Code: "42P01"},
		&mysql.MySQLError{Number: 1243, SQLState: [5]byte{'2', '6', '0', '0', '0'}},
	} {
		require.Equal(t, err, dialect.HintAtPooler(err))
	}
}
