// Package clustertest gives tests the clusters of package testcluster.
package clustertest

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// Require returns a cluster that a function of package testcluster has started, and closes it at
// the end of the test. If a component is missing on this machine, the test is skipped, and the
// error says which one. CI has all components, so there the test fails.
func Require[C interface{ Close() error }](tb testing.TB, cluster C, err error) C {
	tb.Helper()
	if errors.Is(err, testcluster.ErrUnavailable) && os.Getenv("CI") == "" {
		tb.Skip(err)
	}
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, cluster.Close()) })
	return cluster
}
