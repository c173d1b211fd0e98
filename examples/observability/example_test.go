package main

import (
	"bytes"
	"io"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

const story = `All is well. After N no alert fires.
The broker is down. After N these alerts fire:
  critical  PostboxBacklogOld: Messages of the outbox outbox wait for N.
  critical  PostboxCircuitOpen: Nothing gets through to orders from the outbox outbox.
The broker is back. After N no alert fires.
No process handles the letters. After N these alerts fire:
  critical  PostboxNoProcess: No process handles the queue letters, which has due messages.
A worker is there again. After N no alert fires.
RESULT incidents=2 fired=3 cleared=3 orders=N shipped=N
`

// It returns an error if Prometheus fires another alert, or does not clear one.
func TestRun_the_right_alerts_fire_and_clear(t *testing.T) {
	t.Parallel()
	program := testservice.Program(t, "prometheus", "prometheus")
	var out bytes.Buffer
	s := settings{Settings: pipes.Settings{Database: "sqlite", Broker: "gochannel"}, prometheus: program, faster: mostFaster}
	require.NoError(t, run(t.Context(), &out, s), out.String())
	got := regexp.MustCompile(`(After|wait for) [\dms. ]*s`).ReplaceAllString(out.String(), "$1 N")
	counts := regexp.MustCompile(`orders=(\d+) shipped=(\d+)`).FindStringSubmatch(got)
	require.Len(t, counts, 3, got)
	require.Equal(t, counts[1], counts[2])
	require.Equal(t, story, regexp.MustCompile(`(orders|shipped)=\d+`).ReplaceAllString(got, "$1=N"))
}

func TestRun_without_Prometheus_says_how_to_get_it(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), io.Discard, settings{prometheus: "no-such-prometheus", faster: mostFaster})
	require.ErrorContains(t, err, "apt-get install prometheus")
	require.ErrorContains(t, run(t.Context(), io.Discard, settings{faster: 1000}), "use a number from 1 to 30")
}

func TestFaster_changes_times_and_leaves_other_numbers_alone(t *testing.T) {
	t.Parallel()
	require.Equal(t, "expr: rate(a[10000ms]) > 0.1 and b > 10 and c[48000ms:] >= 3\nfor: 2000ms\n",
		faster("expr: rate(a[5m]) > 0.1 and b > 300 and c[24m:] >= 3\nfor: 1m\n", 30))
}
