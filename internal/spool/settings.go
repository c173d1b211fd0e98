package spool

import (
	"encoding/json"
	"fmt"
	"time"
)

// MaxConcurrency is the maximum number of handlers, or of calls to the broker, that a process runs for a spool at a time.
const MaxConcurrency = 10_000

// Settings are the settings that operators have stored for a spool, for all processes. With a zero field, each
// process's own configuration applies.
type Settings struct {
	PageSize    int           `json:"page_size,omitempty"`
	Concurrency int           `json:"concurrency,omitempty"`
	PollMax     time.Duration `json:"poll_max,omitempty"`
	Attempts    int           `json:"attempts,omitempty"`
	// PerSecond and AtOnce are the limit of the whole spool. Negative is no limit.
	PerSecond float64 `json:"per_second,omitempty"`
	AtOnce    int     `json:"at_once,omitempty"`
	// History is how long messages that are done are kept. Negative turns the history off, and deletes the messages in
	// it.
	History time.Duration `json:"history,omitempty"`
	// Retention is how long dead letters of the spool are kept. Negative keeps them for ever.
	Retention time.Duration `json:"retention,omitempty"`
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
