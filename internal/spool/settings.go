package spool

import (
	"encoding/json"
	"fmt"
	"time"
)

// Settings are what operators have stored for a spool, for all processes. A zero field leaves it to each process's
// own configuration.
type Settings struct {
	PageSize    int           `json:"page_size,omitempty"`
	Concurrency int           `json:"concurrency,omitempty"`
	PollMax     time.Duration `json:"poll_max,omitempty"`
	Attempts    int           `json:"attempts,omitempty"`
	// History is how long messages that are done are kept; negative turns it off, and what was kept goes.
	History time.Duration `json:"history,omitempty"`
	// Retention is how long dead letters of the spool are kept; negative keeps them.
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
