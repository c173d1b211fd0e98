package receipts

import (
	"time"

	"github.com/postbox-go/watermill-postbox/internal/cleanup"
)

// Cleaner returns what Run runs, for tests that do not wait for its turns.
func (r *Receiver) Cleaner() *cleanup.Cleaner { return r.cleaner() }

// Tell bounds how long a step tells of overdue receipts.
func (r *Receiver) Tell(atMost time.Duration) { r.tellTimeout = atMost }
