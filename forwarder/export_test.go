package forwarder

import "time"

// Impatient makes the forwarder look soon for calls that do not return. Call it before Run.
func (f *Forwarder) Impatient(after time.Duration) { f.hangAfter, f.hangLook = after, after/3 }

// InFlight returns, for each topic, how many messages this forwarder is publishing now.
func (f *Forwarder) InFlight() map[string]int { return f.drainer.InFlight() }
