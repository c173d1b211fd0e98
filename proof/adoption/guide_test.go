package adoption_test

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// guide is a part of docs/adopt.md whose commands a test executes.
type guide struct {
	t        *testing.T
	database *testdb.Database
	// commands of the part that have not been executed.
	left map[string]bool
}

// openGuide reads the commands of a part, which its heading names.
func openGuide(t *testing.T, database *testdb.Database, heading string) *guide {
	t.Helper()
	page, err := os.ReadFile("../../docs/adopt.md")
	require.NoError(t, err)
	_, part, found := strings.Cut(string(page), "\n## "+heading+"\n")
	require.True(t, found, heading)
	part, _, _ = strings.Cut(part, "\n## ")
	g := &guide{t: t, database: database, left: map[string]bool{}}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(part, -1) {
		for line := range strings.SplitSeq(strings.TrimSpace(block[1]), "\n") {
			g.left[line] = true
		}
	}
	require.NotEmpty(t, g.left)
	return g
}

// run executes a command of the part, and returns its exit code and output.
func (g *guide) run(line string) (code int, output string) {
	g.t.Helper()
	require.Contains(g.t, g.left, line, "the guide has this command")
	g.left[line] = false
	var out bytes.Buffer
	root := command.New(command.Options{LookupEnv: func(name string) (string, bool) {
		value, ok := map[string]string{"POSTBOX_DSN": g.database.DSN, "POSTBOX_DIALECT": string(g.database.Dialect)}[name]
		return value, ok
	}})
	root.SetArgs(strings.Fields(line)[1:])
	root.SetOut(&out)
	root.SetErr(&out)
	return command.Execute(context.WithoutCancel(g.t.Context()), root), out.String()
}

// works executes a command that must succeed.
func (g *guide) works(line string) string {
	g.t.Helper()
	code, output := g.run(line)
	require.Zero(g.t, code, "%s:\n%s", line, output)
	return output
}

// says no: the command works, and its answer is no.
func (g *guide) saysNo(line string) string {
	g.t.Helper()
	code, output := g.run(line)
	require.Equal(g.t, 3, code, "%s:\n%s", line, output)
	return output
}

// finished requires that each command has been executed.
func (g *guide) finished() {
	g.t.Helper()
	for line, left := range g.left {
		require.False(g.t, left, "not executed: %s", line)
	}
}
