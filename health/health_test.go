package health_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/health"
)

var errAway = errors.New("the database is away")

func TestState_says_whether_a_restart_helps_and_whether_it_works(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		state       health.State
		dead, notOK string // parts of the reasons; empty for none
	}{
		"not started":                      {state: health.State{}, notOK: "has not been started"},
		"waits for its database":           {state: health.State{Phase: health.Starting, Turned: ago(time.Hour), Err: errAway}, notOK: "has not started yet: the database is away"},
		"starts":                           {state: health.State{Phase: health.Starting}, notOK: "has not started yet"},
		"works":                            {state: health.State{Phase: health.Running, Turned: now, Answered: ago(9 * time.Second)}},
		"one read failed":                  {state: health.State{Phase: health.Running, Turned: now, Answered: ago(time.Second), Err: errAway}},
		"its database is away":             {state: health.State{Phase: health.Running, Turned: now, Answered: ago(time.Minute), Err: errAway}, notOK: "has not answered for 1m0s: the database is away"},
		"its database hangs":               {state: health.State{Phase: health.Running, Turned: ago(time.Minute), Answered: ago(time.Minute)}, notOK: "has not answered for 1m0s"},
		"its database never answered":      {state: health.State{Phase: health.Running, Turned: now, Err: errAway}, notOK: "has not answered yet: the database is away"},
		"its loop stands still":            {state: health.State{Phase: health.Running, Turned: ago(21 * time.Minute), Answered: now}, dead: "has not moved for 21m0s", notOK: "has not moved"},
		"stops, and waits for its handler": {state: health.State{Phase: health.Stopping, Turned: ago(time.Hour)}, notOK: "is stopping"},
		"has stopped":                      {state: health.State{Phase: health.Stopped, Turned: ago(time.Hour)}, notOK: "has stopped"},
		"has stopped with an error":        {state: health.State{Phase: health.Stopped, Err: errAway}, dead: "has stopped: the database is away", notOK: "has stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.state.Name = "outbox"
			want := func(err error, part string) {
				t.Helper()
				if part == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, "outbox")
					require.ErrorContains(t, err, part)
				}
			}
			want(health.Alive(reported{c.state}), c.dead)
			want(health.IsReady(0, reported{c.state}), c.notOK)
		})
	}
}

// reported is a component with these states.
type reported []health.State

func (r reported) Health() []health.State { return r }

func TestHandlers_answer_probes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	works := health.State{Name: `outbox "outbox"`, Phase: health.Running, Turned: now.Add(time.Minute), Answered: now.Add(time.Minute)}
	waits := health.State{Name: `queue "mail"`, Phase: health.Starting}
	broken := health.State{Name: `queue "bills"`, Phase: health.Stopped, Err: errAway}

	ask := func(handler http.Handler) (status int, reasons []string) {
		t.Helper()
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		var body struct {
			OK      bool
			Reasons []string
		}
		require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &body))
		require.Equal(t, answer.Code == http.StatusOK, body.OK)
		return answer.Code, body.Reasons
	}
	status, reasons := ask(health.Live(reported{works, waits}))
	require.Equal(t, http.StatusOK, status)
	require.Empty(t, reasons)
	status, _ = ask(health.Ready(0, reported{works}))
	require.Equal(t, http.StatusOK, status)
	status, reasons = ask(health.Ready(time.Second, reported{works, waits}, reported{broken}))
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, []string{`queue "mail" has not started yet`, `queue "bills" has stopped: the database is away`}, reasons)
	status, reasons = ask(health.Live(reported{works, waits}, reported{broken}))
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, []string{`queue "bills" has stopped: the database is away`}, reasons)
}
