package spool

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Bounds of [Settings], which operators hear of with different words: see the packages admin and
// cmd/postbox/command.
const (
	MaxPageSize = 10_000
	// MaxConcurrency is the maximum number of handlers, or of calls to the broker, that a process
	// runs for a spool at a time.
	MaxConcurrency = 10_000
	MinPollMax     = time.Millisecond
	MaxPollMax     = time.Hour
	MinKept        = time.Second // of a history, and of dead letters
)

// Settings are the settings that operators have stored for a spool, for all processes. With a zero
// field, each process's own configuration applies.
type Settings struct {
	PageSize    int           `json:"page_size,omitempty"`
	Concurrency int           `json:"concurrency,omitempty"`
	PollMax     time.Duration `json:"poll_max,omitempty"`
	Attempts    int           `json:"attempts,omitempty"`
	// PerSecond and MaxConcurrent are the limit of the whole spool. Negative is no limit.
	PerSecond     float64 `json:"per_second,omitempty"`
	MaxConcurrent int     `json:"max_concurrent,omitempty"`
	// History is how long messages that are done are kept. Negative turns the history off, and
	// deletes the messages in it.
	History time.Duration `json:"history,omitempty"`
	// Retention is how long dead letters of the spool are kept. Negative keeps them for ever.
	Retention time.Duration `json:"retention,omitempty"`
}

// Limits returns these limits with the stored one of the whole spool.
func (s Settings) Limits(configured postbox.Limits) postbox.Limits {
	if s.PerSecond != 0 {
		configured.Total.PerSecond = max(s.PerSecond, 0)
	}
	if s.MaxConcurrent != 0 {
		configured.Total.MaxConcurrent = min(max(s.MaxConcurrent, 0), math.MaxInt32)
	}
	return configured
}

// Encode returns the stored form.
func (s Settings) Encode() (string, error) {
	text, err := json.Marshal(s)
	return string(text), err
}

// DecodeSettings reads the stored form.
func DecodeSettings(text string) (Settings, error) {
	var s Settings
	if text == "" {
		return s, nil
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Settings{}, fmt.Errorf("settings %q: %w", text, err)
	}
	return s, nil
}
