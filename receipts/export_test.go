package receipts

import "github.com/postbox-go/watermill-postbox/internal/cleanup"

// Cleaner returns what Run runs, for tests that do not wait for its turns.
func (r *Receiver) Cleaner() *cleanup.Cleaner { return r.cleaner() }
