package inboxtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Journal is what handlers note, in order.
type Journal struct {
	mu    sync.Mutex
	lines []string
}

// Add notes a line and returns how often it has been noted by now.
func (j *Journal) Add(line string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	return Count(j.lines, line)
}

// All returns the lines.
func (j *Journal) All() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// Times returns how often a line has been noted.
func (j *Journal) Times(line string) int { return Count(j.All(), line) }

// Count returns how often a line is among them.
func Count(lines []string, line string) int {
	n := 0
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}

// OfKey returns the ids of one ordering key.
func OfKey(ids []string, key string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !strings.HasPrefix(id, key+"/") })
}

// Parts are the batches that a handler was called with, and what it did to each.
type Parts struct {
	mu    sync.Mutex
	calls [][]string // ids
}

// Add returns the ids of a batch, and the number of the call.
func (p *Parts) Add(messages []*message.Message) (ids []string, call int) {
	for _, msg := range messages {
		ids = append(ids, msg.UUID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, ids)
	return ids, len(p.calls)
}

// All returns the ids of each call.
func (p *Parts) All() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Numbers returns the ids of so many messages without a key.
func Numbers(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%03d", i)
	}
	return ids
}

// OneOf says whether a batch has one of the culprits.
func OneOf(messages []*message.Message, culprits []string) bool {
	return slices.ContainsFunc(messages, func(msg *message.Message) bool { return slices.Contains(culprits, msg.UUID) })
}
