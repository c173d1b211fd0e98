package upgrade_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// older is the version that a rollout starts from: that of the variable POSTBOX_OLDER, or the commit of which docs/upgrade.md tells.
func older() string {
	return cmp.Or(os.Getenv("POSTBOX_OLDER"), "a5322be26c71e6bccbc4aa34e13881583b0f598a")
}

// build builds the service, in the folder of a version of this module.
func build(t *testing.T, folder string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "service")
	command(t, folder, "go", "build", "-o", program, "./upgrade/service")
	return program
}

func command(t *testing.T, folder, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...) //nolint:gosec // a command of this test
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

// buildOlder builds the service with the older version, in a copy of the repository.
func buildOlder(t *testing.T) (program string) {
	t.Helper()
	look := exec.CommandContext(t.Context(), "git", "-C", "../..", "cat-file", "-e", older()+"^{commit}") //nolint:gosec // a version that the developer names
	if err := look.Run(); err != nil {
		t.Skipf("this clone does not have the commit %s: fetch the history, or name another one in POSTBOX_OLDER", older())
	}
	folder := filepath.Join(t.TempDir(), "older")
	command(t, "../..", "git", "worktree", "add", "--detach", folder, older())
	t.Cleanup(func() {
		_ = exec.Command("git", "-C", "../..", "worktree", "remove", "--force", folder).Run() //nolint:noctx,gosec // the test's context is over
	})
	source, err := os.ReadFile("service/main.go")
	require.NoError(t, err)
	copied := filepath.Join(folder, "proof", "upgrade", "service")
	require.NoError(t, os.MkdirAll(copied, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(copied, "main.go"), source, 0o600)) //nolint:gosec // a folder of this test
	return build(t, filepath.Join(folder, "proof"))
}

// rollout is a service with processes of two versions.
type rollout struct {
	*testing.T

	database   *testdb.Database
	old, newer string
}

// process is one of them.
type process struct {
	r      *rollout
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer
}

// start starts a process and waits until it has handled messages.
func (r *rollout) start(program string) *process {
	r.Helper()
	p := r.launch(program)
	p.works()
	return p
}

func (r *rollout) launch(program string, args ...string) *process {
	r.Helper()
	args = append([]string{string(r.database.Dialect), r.database.DSN}, args...)
	p := &process{r: r, cmd: exec.CommandContext(r.Context(), program, args...)} //nolint:gosec // built by this test
	p.cmd.Stderr = &p.stderr
	stdin, err := p.cmd.StdinPipe()
	require.NoError(r, err)
	p.stdin = stdin
	require.NoError(r, p.cmd.Start())
	return p
}

// works waits until the process has handled some more messages.
func (p *process) works() {
	p.r.Helper()
	effects := func() int {
		return p.r.database.Count(p.r.T, "SELECT COUNT(*) FROM effects WHERE process = ?", p.cmd.Process.Pid)
	}
	before := effects()
	require.Eventually(p.r, func() bool { return effects() >= before+10 }, time.Minute, 20*time.Millisecond, p.stderr.String)
}

// stop stops the process as a deployment does.
func (p *process) stop() {
	p.r.Helper()
	require.NoError(p.r, p.stdin.Close())
	require.NoError(p.r, p.cmd.Wait(), p.stderr.String())
}

// Two processes of the older version run while the tables are migrated, are replaced one by one, and come back one by one on the newer tables. Also covers G2 and G4.
func TestUpgrade_G3_rolls_out_and_back_while_orders_are_placed(t *testing.T) {
	t.Parallel()
	newer, old := build(t, ".."), buildOlder(t)
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		r := &rollout{T: t, database: database, old: old, newer: newer}
		r.createTables()
		first := r.start(r.old)
		version := database.Count(t, "SELECT MAX(version_id) FROM postbox_version")
		second := r.start(r.old)
		require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
		require.Greater(t, database.Count(t, "SELECT MAX(version_id) FROM postbox_version"), version, "the rollout brings a migration")
		first.works()
		second.works()

		third := r.start(r.newer)
		first.stop()
		fourth := r.start(r.newer)
		second.stop()
		third.works()

		first = r.start(r.old) // and back, on the newer tables
		third.stop()
		second = r.start(r.old)
		fourth.stop()
		second.works()
		first.stop()
		r.finish(second)
	})
}

func (r *rollout) createTables() {
	r.Helper()
	number := map[postbox.Dialect]string{
		postbox.PostgreSQL: "bigserial", postbox.MySQL: "BIGINT AUTO_INCREMENT", postbox.SQLite: "INTEGER",
	}[r.database.Dialect]
	r.database.Exec(r.T, "CREATE TABLE customers (name VARCHAR(64) NOT NULL PRIMARY KEY, orders INTEGER NOT NULL)")
	r.database.Exec(r.T, "CREATE TABLE effects (number "+number+" PRIMARY KEY, customer VARCHAR(64) NOT NULL, order_number INTEGER NOT NULL, process INTEGER NOT NULL)")
	for n := range 8 {
		r.database.Exec(r.T, "INSERT INTO customers (name, orders) VALUES (?, 0)", fmt.Sprint("customer ", n))
	}
}

// finish stops the last process and a further one, which handles what is left, and counts.
func (r *rollout) finish(last *process) {
	r.Helper()
	last.stop()
	count := func(query string) int { return r.database.Count(r.T, query) }
	quiet := r.launch(r.newer, "drain")
	require.Eventually(r, func() bool { return count("SELECT COUNT(*) FROM postbox_messages") == 0 }, time.Minute, 20*time.Millisecond, quiet.stderr.String)
	quiet.stop()
	orders := count("SELECT SUM(orders) FROM customers")
	require.Equal(r, orders, count("SELECT COUNT(*) FROM (SELECT DISTINCT customer, order_number FROM effects) AS once"), "nothing is lost")
	require.Equal(r, orders, count("SELECT COUNT(*) FROM effects"), "nothing has its effect twice")
	require.Zero(r, count(`SELECT COUNT(*) FROM (
		SELECT order_number, LAG(order_number) OVER (PARTITION BY customer ORDER BY number) AS previous FROM effects
	) AS pairs WHERE previous > order_number`), "the order of each customer is kept")
	require.Zero(r, count("SELECT COUNT(*) FROM postbox_dead_letters"))
}
