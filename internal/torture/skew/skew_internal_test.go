package skew

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRewrite_knows_the_clock_of_this_Go_G11(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(filepath.Join(runtime.GOROOT(), "src", "time", "time.go")) //nolint:staticcheck // the Go of this test
	require.NoError(t, err)
	rewritten, err := rewrite(source)
	require.NoError(t, err)
	require.Contains(t, string(rewritten), "sec += postboxSkew")
	require.Contains(t, string(rewritten), Variable)
}

func TestRewrite_fails_loudly_where_the_clock_is_another(t *testing.T) {
	t.Parallel()
	_, err := rewrite([]byte("package time\n\nimport (\n\t\"unsafe\"\n)\n"))
	require.ErrorContains(t, err, "bring package skew up to date")
}
