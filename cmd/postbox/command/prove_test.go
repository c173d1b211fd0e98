package command_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
)

// The command starts itself again, so it runs in a process of its own.
func TestProve_starts_processes_of_the_program_and_prints_the_result(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	program := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this test itself
	program.Env = append(os.Environ(), programVariable+"=prove\n--duration\n1s\n--seed\n46\n-o\njson", "POSTBOX_DSN="+filepath.Join(folder, "shop.db"))
	var progress bytes.Buffer
	program.Stderr = &progress
	output, err := program.Output()
	require.NoError(t, err, "%s%s", output, progress.String())
	var report struct {
		Kept    bool
		Intents int
		Seed    uint64
	}
	require.NoError(t, json.Unmarshal(output, &report))
	require.True(t, report.Kept)
	require.Positive(t, report.Intents)
	require.EqualValues(t, 46, report.Seed)
	require.Contains(t, progress.String(), "In the folder "+folder)
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestProve_refuses_what_it_cannot_do(t *testing.T) {
	t.Parallel()
	for text, args := range map[string][]string{
		"no database is named":               {"prove"},
		"--duration: at least 1s":            {"prove", "--dsn", "x.db", "--duration", "0s"},
		"--through-pooler is for PostgreSQL": {"prove", "--dsn", "x.db", "--through-pooler", "postgres://pooler/shop"},
	} {
		r := execute(t.Context(), command.Options{}, nil, args...)
		require.Equal(t, command.ExitUsage, r.code, args)
		require.Contains(t, r.err, text)
	}
	r := execute(t.Context(), command.Options{}, nil, "prove", "--dsn", ":memory:")
	require.Equal(t, command.ExitError, r.code)
	require.Contains(t, r.err, "nothing was tried: a database in memory belongs to one process")
}
