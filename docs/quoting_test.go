package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// quotesWhole finds what quotes an id, a key or a name of somebody else at any length. Names of
// spools have 255 bytes at most.
var quotesWhole = regexp.MustCompile(`(message|messages|key|topic|queue|exchange) %q`)

func TestErrors_shorten_the_ids_keys_and_topics_that_they_quote(t *testing.T) {
	t.Parallel()
	ours := regexp.MustCompile(`^(admin|brokers|forwarder|inboxstore|middleware|postboxtest|queue|router|internal/(dialect|inbox|spool|txscope|lifecycle))?/?[^/]*\.go$|^(brokers|inboxstore)/`)
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		slashed := filepath.ToSlash(path)
		if err != nil || !ours.MatchString(slashed) || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // a file of this module
		require.NoError(t, err)
		require.Empty(t, quotesWhole.FindAllString(string(text), -1), "%s: write %%.60q for ids and keys, %%.300q for topics", slashed)
		return nil
	}))
}
