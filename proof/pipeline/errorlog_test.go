package pipeline_test

import (
	"fmt"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
)

// errorLog keeps the errors of a log. It may be read while it is written to, which Watermill's
// CaptureLoggerAdapter may not.
type errorLog struct {
	watermill.NopLogger

	mu    sync.Mutex
	lines []string
}

func (l *errorLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }

func (l *errorLog) Error(msg string, err error, fields watermill.LogFields) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%s: %v %v", msg, err, fields))
}

// with returns the errors that contain a text.
func (l *errorLog) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}
