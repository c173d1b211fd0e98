package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = time.Minute

// The demo shows a backlog that moves, a queue and dead letters, and ends when it is interrupted.
func TestDashboard_shows_a_shop_that_runs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, writer, "127.0.0.1:0") }()
	line, err := bufio.NewReader(reader).ReadString('\n')
	require.NoError(t, err)
	address := regexp.MustCompile(`http://\S+/`).FindString(line)

	require.Contains(t, get(t, address+"incident"), "healthy")
	response, err := http.PostForm(address+"incident", nil) //nolint:noctx // the demo's own address
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Contains(t, get(t, address+"incident"), "make trouble")
	require.Eventually(t, func() bool {
		page := get(t, address)
		return strings.Contains(page, "Queue") && strings.Contains(page, "payments") && strings.Contains(page, "dead letter")
	}, patience, 100*time.Millisecond)
	require.Eventually(t, func() bool { return strings.Contains(get(t, address+"letters"), "is not accepted") }, patience, 100*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}

func get(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return string(content)
}
