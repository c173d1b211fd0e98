package commit_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/commit"
)

func TestWentBack_adds_only_errors_that_say_something_new(t *testing.T) {
	t.Parallel()
	work, deadlock := errors.New("no stock"), &mysql.MySQLError{Number: 1213}
	noSavepoint := &mysql.MySQLError{Number: 1305, Message: "SAVEPOINT does not exist"}
	for _, known := range []error{nil, sql.ErrTxDone, driver.ErrBadConn} {
		require.Equal(t, work, commit.WentBack(work, known))
	}
	require.Equal(t, error(deadlock), commit.WentBack(deadlock, noSavepoint))
	for _, news := range []error{noSavepoint, &pq.Error{Code: "3B001"}, errors.New("a driver without codes")} {
		err := commit.WentBack(work, news)
		require.ErrorIs(t, err, work)
		require.ErrorIs(t, err, news)
		require.ErrorContains(t, err, "no stock\nroll back: ")
	}
}
