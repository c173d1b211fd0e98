package pgtail

import (
	"context"
	"errors"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Tail is what [New] returns.
type Tail = reader

// LookForRetained sets how often a Tail looks at how much log the server keeps.
func (t *reader) LookForRetained(every time.Duration) { t.retainedInterval = every }

// Check returns the problems that [Inspect] finds.
func Check(ctx context.Context, db postbox.Database, config Config) error {
	status, err := Inspect(ctx, db, config)
	problems := []error{err}
	for _, f := range status.Findings {
		if f.Problem {
			problems = append(problems, errors.New(f.What+": "+f.Fix))
		}
	}
	return errors.Join(problems...)
}
