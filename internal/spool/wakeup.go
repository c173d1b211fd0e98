package spool

import "sync"

// wakeUps holds the channels by which the drainers of this process learn of commits. Their key
// consists of the names of the tables and of the spool, because the code that writes and the code
// that drains may have different handles on one database. Two databases with the same names share a
// key, which costs only a needless poll.
var wakeUps = struct {
	sync.Mutex
	waiting map[string]map[chan struct{}]struct{}
}{waiting: map[string]map[chan struct{}]struct{}{}}

// WakeUps returns a channel that gets a token after each [Spool.Wake] in this process, and a
// function that ends the subscription.
func (s *Spool) WakeUps() (tokens <-chan struct{}, stop func()) {
	channel := make(chan struct{}, 1)
	wakeUps.Lock()
	defer wakeUps.Unlock()
	if wakeUps.waiting[s.wakeUp] == nil {
		wakeUps.waiting[s.wakeUp] = map[chan struct{}]struct{}{}
	}
	wakeUps.waiting[s.wakeUp][channel] = struct{}{}
	return channel, func() {
		wakeUps.Lock()
		defer wakeUps.Unlock()
		delete(wakeUps.waiting[s.wakeUp], channel)
		if len(wakeUps.waiting[s.wakeUp]) == 0 {
			delete(wakeUps.waiting, s.wakeUp)
		}
	}
}

// Wake wakes the drainers of this spool in this process. It never blocks.
func (s *Spool) Wake() {
	wakeUps.Lock()
	defer wakeUps.Unlock()
	for channel := range wakeUps.waiting[s.wakeUp] {
		select {
		case channel <- struct{}{}:
		default: // a token is already waiting
		}
	}
}
