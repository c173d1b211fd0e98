package security_test

import (
	"fmt"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
)

// capture is a logger that remembers what it is told, a line each: level, text, error and fields.
type capture struct {
	fields watermill.LogFields
	lines  *captured
}

type captured struct {
	mu   sync.Mutex
	all  []string
	loud []string // at info level or above
}

func newCapture() capture { return capture{lines: &captured{}} }

func (c capture) add(loud bool, level, text string, err error, fields watermill.LogFields) {
	line := fmt.Sprintf("%s %s: %v %+v", level, text, err, c.fields.Add(fields))
	c.lines.mu.Lock()
	defer c.lines.mu.Unlock()
	c.lines.all = append(c.lines.all, line)
	if loud {
		c.lines.loud = append(c.lines.loud, line)
	}
}

func (c capture) Error(text string, err error, fields watermill.LogFields) {
	c.add(true, "error", text, err, fields)
}

func (c capture) Info(text string, fields watermill.LogFields) {
	c.add(true, "info", text, nil, fields)
}

func (c capture) Debug(text string, fields watermill.LogFields) {
	c.add(false, "debug", text, nil, fields)
}

func (c capture) Trace(text string, fields watermill.LogFields) {
	c.add(false, "trace", text, nil, fields)
}

func (c capture) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return capture{fields: c.fields.Add(fields), lines: c.lines}
}

// everything is what was logged at any level, loudly what was logged at info level or above.
func (c capture) everything() string { return c.join(func() []string { return c.lines.all }) }

func (c capture) loudly() string { return c.join(func() []string { return c.lines.loud }) }

func (c capture) join(lines func() []string) string {
	c.lines.mu.Lock()
	defer c.lines.mu.Unlock()
	return strings.Join(lines(), "\n")
}
