package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

const (
	// answerTime is how long the fraud check takes.
	answerTime = 30 * time.Millisecond
	// The check is away after so many questions, for that long.
	questionsUntilAway = 5
	awayFor            = 300 * time.Millisecond
	// comeAgain is what a busy check says.
	comeAgain = 10 * time.Millisecond
)

var (
	errAway    = errors.New("the fraud check is away")
	errBusy    = errors.New("the fraud check is busy")
	errDamaged = errors.New("the fraud check cannot read the file")
)

// fraudCheck stands for a service of somebody else, with all that such a service does to its
// callers.
type fraudCheck struct {
	mu       sync.Mutex
	seen     map[string]bool
	backAt   time.Time
	repaired bool

	asked, busy, away int
}

func newFraudCheck() *fraudCheck { return &fraudCheck{seen: map[string]bool{}} }

// ask says whether the user is a fraud.
func (c *fraudCheck) ask(ctx context.Context, userID string) (fraud bool, err error) {
	working := time.NewTimer(answerTime)
	defer working.Stop()
	select {
	case <-working.C:
	case <-ctx.Done():
		return false, ctx.Err()
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.asked == questionsUntilAway {
		c.backAt = time.Now().Add(awayFor)
	}
	if time.Now().Before(c.backAt) {
		c.away++
		return false, errAway
	}
	if isDamaged(userID) && !c.repaired {
		return false, fmt.Errorf("%w of %s", errDamaged, userID)
	}
	// It is busy when it is asked about somebody for the first time. It says when to come again,
	// and the queue does.
	if !c.seen[userID] {
		c.seen[userID] = true
		c.busy++
		return false, postbox.RetryAfter(errBusy, comeAgain)
	}
	return isFraud(userID), nil
}

// repair ends what made some questions fail for ever.
func (c *fraudCheck) repair() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repaired = true
}

// counts says how often the check was asked, and what it could not answer.
func (c *fraudCheck) counts() (asked, busy, away int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked, c.busy, c.away
}

// isFraud is the truth, which the check finds out.
func isFraud(userID string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(userID))
	return h.Sum32()%2 == 0
}

// isDamaged says whose file nobody can read until it is repaired: that of the first user of each
// run.
func isDamaged(userID string) bool { return strings.HasSuffix(userID, "-00") }
