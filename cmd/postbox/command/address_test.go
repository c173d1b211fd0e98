package command_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
)

const sqliteOptions = "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"

// opened returns what the program would open.
func opened(t *testing.T, env map[string]string, args ...string) (command.OpenParams, result) {
	t.Helper()
	var params command.OpenParams
	r := execute(t.Context(), command.Options{Open: func(p command.OpenParams) (*sql.DB, error) {
		params = p
		return nil, errors.New("not opened, with " + p.DSN)
	}}, env, append(args, "migrate", "up")...)
	return params, r
}

func TestAddress_in_each_form(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dsn, kind string
		dialect   postbox.Dialect
		want      string
	}{
		{"postgres://u:p@h:5432/shop?sslmode=disable", "", postbox.PostgreSQL, "postgres://u:p@h:5432/shop?sslmode=disable"},
		{"postgresql://h/shop", "postgresql", postbox.PostgreSQL, "postgresql://h/shop"},
		{"host=h dbname=shop", "postgresql", postbox.PostgreSQL, "host=h dbname=shop"},
		{"mysql://u:p%40:/@h/shop?tls=true", "", postbox.MySQL, ""},
		{"mysql://u:p%40%3A%2F@h/shop?tls=true", "", postbox.MySQL, "u:p@:/@tcp(h:3306)/shop?tls=true"},
		{"mariadb://u@[::1]:3307/shop", "", postbox.MySQL, "u:@tcp([::1]:3307)/shop"},
		{"mysql://h/shop", "mysql", postbox.MySQL, "tcp(h:3306)/shop"},
		{"u:p@unix(/run/mysql.sock)/shop", "mysql", postbox.MySQL, "u:p@unix(/run/mysql.sock)/shop"},
		{"mysql:p@tcp(h:3306)/shop", "mysql", postbox.MySQL, "mysql:p@tcp(h:3306)/shop"},
		{"sqlite:///var/shop.db", "", postbox.SQLite, "file:/var/shop.db?" + sqliteOptions},
		{"sqlite:shop.db", "", postbox.SQLite, "file:shop.db?" + sqliteOptions},
		{"sqlite://shop.db?_txlock=immediate", "", postbox.SQLite, "file:shop.db?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"},
		{"file:/var/shop%20.db", "", postbox.SQLite, "file:/var/shop%20.db?" + sqliteOptions},
		{"/var/100%#.db", "", postbox.SQLite, "file:/var/100%25%23.db?" + sqliteOptions},
		{"shop", "sqlite", postbox.SQLite, "file:shop?" + sqliteOptions},
	} {
		args := []string{"--dsn", c.dsn}
		if c.kind != "" {
			args = append(args, "--dialect", c.kind)
		}
		params, r := opened(t, nil, args...)
		if c.want == "" {
			require.Equal(t, command.ExitUsage, r.code, c.dsn)
			continue
		}
		require.Equal(t, command.OpenParams{Dialect: c.dialect, DSN: c.want}, params, c.dsn)
	}
}

// An address that is wrong in any way leads to an error that says what to do, and never to one with
// the password.
func TestAddress_errors_never_have_the_password(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dsn, kind, says string }{
		{"", "", "no database is named"},
		{"postgres://u:gehe im@127.0.0.1:1/shop", "", "is not a URL"},
		{"postgres://u:geheim@127.0.0.1:port/shop", "", "is not a URL"},
		{"postgres://u:geheim@127.0.0.1:1/shop?sslmode=disable", "", "connect to the database"},
		{"postgres://u:geheim@127.0.0.1:1/shop?sslmode=geheim", "", ""},
		{"postgres://u@127.0.0.1:1/shop?password=geheim&sslmode=geheim", "", ""},
		{"postgres://u:geheim@127.0.0.1:1/shop", "mysql", "begins with postgres:"},
		{"host=127.0.0.1 port=1 password=gehe geheim", "postgresql", "write the address as a URL"},
		{"host=127.0.0.1 password=geheim", "", "set --dialect"},
		{"u:geheim@tcp(127.0.0.1:1)/shop", "", "set --dialect"},
		{"u:geheim@tcp(127.0.0.1:1)/shop", "mysql", "connect to the database"},
		{"u:geheim@tcp(127.0.0.1:1/shop", "mysql", "open the database"},
		{"u:geheim@tcp(127.0.0.1:1)/shop?tls=geheim", "mysql", ""},
		{"mysql://u:geheim@127.0.0.1:1/shop", "", "connect to the database"},
		{"mysql://u%3Av:geheim@127.0.0.1:1/shop", "", "a user with a colon"},
		{"mysql:u:geheim", "", "is not a URL"},
		{"mysql:geheim@tcp(127.0.0.1:1)/shop", "mysql", "connect to the database"},
		{"oracle://u:geheim@127.0.0.1/shop", "", "set --dialect"},
	} {
		args := []string{"queues", "--dsn", c.dsn}
		if c.kind != "" {
			args = append(args, "--dialect", c.kind)
		}
		r := execute(t.Context(), command.Options{}, nil, args...)
		require.NotZero(t, r.code, c.dsn)
		require.NotContains(t, r.out+r.err, "geheim", c.dsn)
		require.Contains(t, r.err, c.says, c.dsn)
	}
	_, r := opened(t, nil, "--dsn", "postgres://u:ge%20heim@h/shop?sslmode=disable")
	require.Contains(t, r.err, "not opened, with ***")
	require.NotContains(t, r.err, "heim")
}

// A flag comes before a variable, and a variable before the file.
func TestSettings_come_from_flags_variables_and_a_file(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "postbox.conf")
	require.NoError(t, os.WriteFile(file, []byte("# production\n\nPOSTBOX_DSN='postgres://file/shop'\nPOSTBOX_SCHEMA = file\n"), 0o600))
	env := map[string]string{"POSTBOX_DSN": "postgres://variable/shop"}

	params, _ := opened(t, nil, "--config", file)
	require.Equal(t, "postgres://file/shop", params.DSN)
	params, _ = opened(t, env, "--config", file)
	require.Equal(t, "postgres://variable/shop", params.DSN)
	params, _ = opened(t, env, "--config", file, "--dsn", "postgres://flag/shop")
	require.Equal(t, "postgres://flag/shop", params.DSN)

	r := execute(t.Context(), command.Options{}, nil, "migrate", "sql", "--config", file)
	require.Contains(t, r.out, `"file".postbox_spools`)

	for _, c := range []struct{ text, says string }{
		{"POSTBOX_DSN", "line 1: write NAME=VALUE"},
		{"\nSECRET=geheim", "line 2: there is no setting of this name"},
	} {
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
		_, r := opened(t, nil, "--config", file)
		require.Equal(t, command.ExitUsage, r.code)
		require.Contains(t, r.err, c.says)
		require.NotContains(t, r.err, "geheim")
	}
	_, r = opened(t, nil, "--config", file+".gone")
	require.Equal(t, command.ExitUsage, r.code)
}

// A server that accepts the connection and then says nothing does not keep a command from ending.
func TestExecute_ends_although_the_server_is_silent(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan result, 1)
	go func() {
		ended <- execute(ctx, command.Options{}, nil, "check", "--dsn", "postgres://u:p@"+silent.Addr().String()+"/shop?sslmode=disable")
	}()
	conn, err := silent.Accept()
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	interrupt()
	select {
	case r := <-ended:
		require.Equal(t, command.ExitStopped, r.code, r.err)
	case <-time.After(time.Minute):
		t.Fatal("the command goes on")
	}
}
