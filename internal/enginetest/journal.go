package enginetest

import (
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
)

// Journal is a logger that remembers, by level. It is safe for concurrent use.
type Journal struct {
	watermill.NopLogger

	mu      sync.Mutex
	entries map[watermill.LogLevel][]watermill.CapturedMessage
}

// NewJournal returns an empty one.
func NewJournal() *Journal {
	return &Journal{entries: map[watermill.LogLevel][]watermill.CapturedMessage{}}
}

// Error takes in an error.
func (j *Journal) Error(msg string, err error, fields watermill.LogFields) {
	j.note(watermill.ErrorLogLevel, msg, err, fields)
}

// Info takes in a line of that level.
func (j *Journal) Info(msg string, fields watermill.LogFields) {
	j.note(watermill.InfoLogLevel, msg, nil, fields)
}

// Debug takes in a line of that level.
func (j *Journal) Debug(msg string, fields watermill.LogFields) {
	j.note(watermill.DebugLogLevel, msg, nil, fields)
}

// At returns what was logged at a level.
func (j *Journal) At(level watermill.LogLevel) []watermill.CapturedMessage {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries[level])
}

// Said returns how many lines have the words, whatever their level.
func (j *Journal) Said(words string) int {
	n := 0
	for _, level := range []watermill.LogLevel{watermill.ErrorLogLevel, watermill.InfoLogLevel, watermill.DebugLogLevel} {
		for _, line := range j.At(level) {
			if strings.Contains(line.Msg, words) {
				n++
			}
		}
	}
	return n
}

func (j *Journal) note(level watermill.LogLevel, msg string, err error, fields watermill.LogFields) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries[level] = append(j.entries[level], watermill.CapturedMessage{Level: level, Msg: msg, Err: err, Fields: fields})
}
