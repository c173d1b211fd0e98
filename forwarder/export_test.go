package forwarder

import "time"

// Impatient makes the forwarder look soon for calls that do not return. Call it before Run.
func (f *Forwarder) Impatient(after time.Duration) { f.hangAfter, f.hangLook = after, after/3 }
