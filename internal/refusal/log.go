// Package refusal writes refused requests into a log.
package refusal

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// perMinute is how many lines a minute has: anyone can send a request that is refused, and must not
// fill the disk.
const perMinute = 20

// Log writes a line for each refused request, at most 20 in a minute. It is safe for concurrent
// use.
type Log struct {
	logger watermill.LoggerAdapter
	now    func() time.Time

	mu      sync.Mutex
	minute  time.Time // when it began
	written int       // in this minute
	omitted int       // since the last line
}

// New returns a Log that writes to a logger.
func New(logger watermill.LoggerAdapter) *Log { return &Log{logger: logger, now: time.Now} }

// Refused says who was refused what, and why. The line has no query, no header with a password and
// no form: these can have secrets. A field "omitted" has the number of refused requests without a
// line before this one.
func (l *Log) Refused(r *http.Request, actor string, reason error) {
	omitted, ok := l.next()
	if !ok {
		return
	}
	fields := watermill.LogFields{
		"remote": printable(r.RemoteAddr), "method": printable(r.Method), "path": printable(r.URL.EscapedPath()), "reason": printable(reason.Error()),
	}
	for name, value := range map[string]string{"actor": actor, "forwarded_for": r.Header.Get("X-Forwarded-For")} {
		if value != "" {
			fields[name] = printable(value)
		}
	}
	if omitted > 0 {
		fields["omitted"] = omitted
	}
	l.logger.Info("The dashboard refused a request", fields)
}

// next reports whether a line may be written, and how many were left out before it.
func (l *Log) next() (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.minute) >= time.Minute {
		l.minute, l.written = now, 0
	}
	if l.written == perMinute {
		l.omitted++
		return 0, false
	}
	l.written++
	omitted, l.omitted = l.omitted, 0
	return omitted, true
}

// maxText is how many bytes of a text the log gets.
const maxText = 300

// printable cuts a text off, and quotes it if a terminal or a reader of the log could take it for
// something else.
func printable(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	for _, r := range text {
		if !strconv.IsPrint(r) {
			return strconv.Quote(text)
		}
	}
	return text
}
