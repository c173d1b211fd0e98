package refusal

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
)

var errTest = errors.New("no token\nlevel=INFO msg=forged")

func request(t *testing.T) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/ops/pause%0Aforged?outbox=outbox&token=secret-1", strings.NewReader("password=secret-2"))
	r.RemoteAddr = "192.0.2.7:4242"
	r.SetBasicAuth("secret-3", "secret-4")
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	return r
}

func TestLog_says_who_was_refused_what_and_why_without_secrets(t *testing.T) {
	t.Parallel()
	logger := watermill.NewCaptureLogger()
	New(logger).Refused(request(t), "", errTest)
	lines := logger.Captured()[watermill.InfoLogLevel]
	require.Len(t, lines, 1)
	require.Equal(t, "The dashboard refused a request", lines[0].Msg)
	require.Equal(t, watermill.LogFields{
		"remote": "192.0.2.7:4242", "method": "POST", "path": "/ops/pause%0Aforged", "reason": `"no token\nlevel=INFO msg=forged"`, "forwarded_for": "203.0.113.9",
	}, lines[0].Fields)
}

func TestLog_has_a_bounded_number_of_bounded_lines_a_minute(t *testing.T) {
	t.Parallel()
	logger := watermill.NewCaptureLogger()
	l, now := New(logger), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l.now = func() time.Time { return now }
	r := request(t)
	r.URL.Path, r.URL.RawPath = "/"+strings.Repeat("é", 1<<16), ""
	for range 1000 {
		l.Refused(r, strings.Repeat("a", 1<<16), errTest)
	}
	lines := logger.Captured()[watermill.InfoLogLevel]
	require.Len(t, lines, perMinute)
	for name, value := range lines[0].Fields {
		require.LessOrEqual(t, len(value.(string)), maxText+len("…"), name)
	}

	now = now.Add(time.Minute)
	l.Refused(r, "", errTest)
	l.Refused(r, "", errTest)
	lines = logger.Captured()[watermill.InfoLogLevel]
	require.Len(t, lines, perMinute+2)
	require.Equal(t, 1000-perMinute, lines[perMinute].Fields["omitted"])
	require.NotContains(t, lines[perMinute+1].Fields, "omitted")
}
