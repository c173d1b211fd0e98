package testcluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// make clusters starts the servers themselves: they are too heavy for each test run.

func TestKafkaJars_takes_a_complete_folder(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	_, err := kafkaJars()
	require.ErrorIs(t, err, ErrUnavailable)
	for _, name := range []string{"kafka-3.9.2.Ab12Cd", "bin"} {
		require.NoError(t, os.MkdirAll(filepath.Join(cache, "postbox", name), 0o700))
	}
	_, err = kafkaJars()
	require.ErrorIs(t, err, ErrUnavailable, "one that is being filled")
	complete := filepath.Join(cache, "postbox", "kafka-3.9.2")
	require.NoError(t, os.Mkdir(complete, 0o700))
	found, err := kafkaJars()
	require.NoError(t, err)
	require.Equal(t, complete, found)
}
