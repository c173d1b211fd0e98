package command_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The file has the payloads of all messages.
func TestMigrate_makes_a_file_that_only_its_owner_reads(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shop.db")
	r := execute(t.Context(), command.Options{}, nil, "migrate", "up", "--dsn", "sqlite://"+file)
	require.Zero(t, r.code, r.err)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// A producer may choose a key that looks like a flag. Pasted into a command it is a key.
func TestNames_that_look_like_flags_are_none(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	for _, key := range []string{"--yes", "--help", "-y", "--"} {
		b.append(b.outbox, draft("m "+key, "orders", key))
		b.ok("keys", "pause", `"`+key+`"`)
	}
	listed := b.ok("keys", "list")
	for _, key := range []string{"--yes", "--help", "-y", "--"} {
		require.Contains(t, listed, `'"`+key+`"'`)
	}
	b.ok("keys", "resume", `"--yes"`)
}
