package pgtail

import "time"

// LookForRetained sets how often a Tail looks at how much log the server keeps.
func (t *Tail) LookForRetained(every time.Duration) { t.retainedInterval = every }
