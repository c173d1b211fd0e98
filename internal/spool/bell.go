package spool

import "sync"

// bells wake the drainers of this process. They hang on the names of the tables and of the spool, because the
// one who writes and the one who drains may well have different handles on the same database. Two databases
// with the same names share a bell: that costs a needless look and nothing else.
var bells = struct {
	sync.Mutex
	waiting map[string]map[chan struct{}]struct{}
}{waiting: map[string]map[chan struct{}]struct{}{}}

// listen returns a channel that gets a token after each ring, and a function that ends that.
func listen(name string) (rings <-chan struct{}, stop func()) {
	bell := make(chan struct{}, 1)
	bells.Lock()
	defer bells.Unlock()
	if bells.waiting[name] == nil {
		bells.waiting[name] = map[chan struct{}]struct{}{}
	}
	bells.waiting[name][bell] = struct{}{}
	return bell, func() {
		bells.Lock()
		defer bells.Unlock()
		delete(bells.waiting[name], bell)
		if len(bells.waiting[name]) == 0 {
			delete(bells.waiting, name)
		}
	}
}

// ring wakes whoever listens. It never blocks.
func ring(name string) {
	bells.Lock()
	defer bells.Unlock()
	for bell := range bells.waiting[name] {
		select {
		case bell <- struct{}{}:
		default: // a token is waiting already
		}
	}
}

// Ring wakes the drainers of this spool in this process.
func (s *Spool) Ring() { ring(s.bell) }

// Listen returns a channel that gets a token after each [Spool.Ring] in this process, and a function that ends that.
func (s *Spool) Listen() (rings <-chan struct{}, stop func()) { return listen(s.bell) }
