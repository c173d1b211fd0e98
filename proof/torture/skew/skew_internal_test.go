package skew

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRewrite_G11_knows_the_clocks_of_this_Go_version(t *testing.T) {
	t.Parallel()
	for name := range files {
		source, err := os.ReadFile(filepath.Join(runtime.GOROOT(), "src", name)) //nolint:staticcheck,gosec // a file of the Go of this test
		require.NoError(t, err)
		rewritten, err := rewrite(name, source)
		require.NoError(t, err)
		require.Contains(t, string(rewritten), "postboxSt")
	}
}

func TestRewrite_fails_on_a_source_that_it_does_not_know(t *testing.T) {
	t.Parallel()
	_, err := rewrite("time/time.go", []byte("package time\n\nimport (\n\t\"unsafe\"\n)\n"))
	require.ErrorContains(t, err, "bring package skew up to date")
}

func TestStill_adds_up(t *testing.T) {
	t.Parallel()
	still := Still(filepath.Join(t.TempDir(), "still"))
	require.Error(t, still.Add(time.Second), "no process has it")
	require.NoError(t, still.Create())
	require.NoError(t, still.Add(time.Second))
	require.NoError(t, still.Add(2*time.Second))
	again, err := os.ReadFile(string(still))
	require.NoError(t, err)
	require.NoError(t, still.Create())
	require.NoError(t, still.Add(3*time.Second))
	once, err := os.ReadFile(string(still))
	require.NoError(t, err)
	require.Equal(t, once, again)
}
