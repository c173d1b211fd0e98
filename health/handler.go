package health

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// defaultWithin is some times as long as the second after which an idle component asks its database
// again.
const defaultWithin = 10 * time.Second

// Alive returns the reasons why a restart of the process would help, joined; nil if there is none.
func Alive(reporters ...Reporter) error {
	now := time.Now()
	return each(reporters, func(s State) error { return s.alive(now) })
}

// IsReady returns the reasons why not all components process messages, joined; nil if there is
// none. The database of each must have answered within the given time: 0 means 10 s. An idle
// component asks its database about once a second.
func IsReady(within time.Duration, reporters ...Reporter) error {
	now := time.Now()
	return each(reporters, func(s State) error { return s.ready(now, cmp.Or(within, defaultWithin)) })
}

func each(reporters []Reporter, problem func(s State) error) error {
	var problems []error
	for _, reporter := range reporters {
		for _, state := range reporter.Health() {
			problems = append(problems, problem(state))
		}
	}
	return errors.Join(problems...)
}

// Live returns a handler for liveness probes: it answers 200, or 503 if a restart of the process
// would help. The body is JSON with the reasons.
func Live(reporters ...Reporter) http.Handler {
	return answering(func() error { return Alive(reporters...) })
}

// Ready returns a handler for readiness probes: it answers 200, or 503 if not all components
// process messages. The body is JSON with the reasons. For the time see [IsReady].
func Ready(within time.Duration, reporters ...Reporter) http.Handler {
	return answering(func() error { return IsReady(within, reporters...) })
}

// answer is the body of a probe's answer.
type answer struct {
	OK      bool     `json:"ok"`
	Reasons []string `json:"reasons,omitempty"`
}

func answering(problem func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		said := answer{OK: true}
		status := http.StatusOK
		if err := problem(); err != nil {
			said.OK, status = false, http.StatusServiceUnavailable
			said.Reasons = reasons(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(said) // the caller has gone
	})
}

// reasons takes joined errors apart.
func reasons(err error) []string {
	joined, is := err.(interface{ Unwrap() []error })
	if !is {
		return []string{err.Error()}
	}
	var texts []string
	for _, part := range joined.Unwrap() {
		texts = append(texts, part.Error())
	}
	return texts
}
