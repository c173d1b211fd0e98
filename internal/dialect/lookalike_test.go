package dialect_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Galera: what a node says that has lost the others, and what a COMMIT says that the others may
// have made.
func TestClassify_errors_of_a_node_of_galera(t *testing.T) {
	t.Parallel()
	for _, number := range []uint16{1047, 1180} {
		err := &mysql.MySQLError{Number: number}
		require.Equal(t, dialect.Unavailable, dialect.MySQL.Classify(err), "%d", number)
		require.False(t, dialect.RolledBack(err), "%d", number)
	}
}

// versioned is a server that answers each question with its version.
type versioned string

func (v versioned) Connect(context.Context) (driver.Conn, error) { return v, nil }
func (v versioned) Driver() driver.Driver                        { return nil }
func (v versioned) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (v versioned) Close() error                                 { return nil }
func (v versioned) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }

func (v versioned) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return nil, errors.ErrUnsupported
}

func (v versioned) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if query != "SELECT version()" {
		return nil, errors.ErrUnsupported
	}
	return &answer{text: string(v)}, nil
}

type answer struct {
	text  string
	given bool
}

func (*answer) Columns() []string { return []string{"version"} }
func (*answer) Close() error      { return nil }
func (a *answer) Next(row []driver.Value) error {
	if a.given {
		return io.EOF
	}
	a.given, row[0] = true, a.text
	return nil
}

func TestCheckServer_refuses_what_only_looks_alike_and_what_is_too_old(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind    dialect.Kind
		version string
		says    string // empty: it passes
	}{
		{dialect.PostgreSQL, "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc", ""},
		{dialect.PostgreSQL, "PostgreSQL 13.22", ""},
		{dialect.PostgreSQL, "PostgreSQL 18beta1 on x86_64", ""},
		{dialect.PostgreSQL, "PostgreSQL 12.22 on x86_64", "PostgreSQL 12.22, and Postbox needs 13.0"},
		{dialect.PostgreSQL, "PostgreSQL 11.2-YB-2.25.0.0-b0 on x86_64", "YugabyteDB"},
		{dialect.PostgreSQL, "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27)", "CockroachDB"},
		{dialect.PostgreSQL, "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2, Redshift 1.0.62312", "Redshift"},
		{dialect.PostgreSQL, "PostgreSQL 9.5.0 on x86_64-unknown-linux-gnu (Materialize v0.26.0)", "Materialize"},
		{dialect.MySQL, "8.0.33", ""},
		{dialect.MySQL, "8.4.2-log", ""},
		{dialect.MySQL, "10.11.19-MariaDB-0+deb12u1", ""},
		{dialect.MySQL, "5.5.5-10.6.18-MariaDB", ""},
		{dialect.MySQL, "5.7.44-log", "MySQL 5.7, and Postbox needs 8.0"},
		{dialect.MySQL, "10.4.3-MariaDB", "MariaDB 10.4, and Postbox needs 10.6"},
		{dialect.MySQL, "8.0.11-TiDB-v8.5.6", "TiDB"},
		{dialect.MySQL, "8.0.30-Vitess", "Vitess"},
	} {
		t.Run(test.version, func(t *testing.T) {
			t.Parallel()
			statements, err := dialect.For(test.kind, "", "", "")
			require.NoError(t, err)
			db := sql.OpenDB(versioned(test.version))
			t.Cleanup(func() { _ = db.Close() })
			err = statements.CheckServer(t.Context(), db)
			if test.says == "" {
				require.NotErrorIs(t, err, dialect.ErrUnfit)
				return
			}
			require.ErrorIs(t, err, dialect.ErrUnfit)
			require.ErrorContains(t, err, test.says)
			statements.AnyServer = true
			require.NotErrorIs(t, statements.CheckServer(t.Context(), db), dialect.ErrUnfit)
		})
	}
}
