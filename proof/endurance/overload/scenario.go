package overload

import (
	"time"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// scenario is one overload. Slow handling makes the capacity small, so that ten times as much is no
// work for the machine.
type scenario struct {
	name string
	// queue: deliveries go into the queue of an inbox, all at a time; otherwise transactions go
	// into an outbox.
	queue bool
	// writers write at a time, perTx messages in each transaction, for keys of their own.
	writers, perTx, keys int
	payload              int // bytes
	// workers handle messages, each for so long; if that is not set, until the recovery begins.
	workers int
	delay   time.Duration
	page    int // messages that are read at once
	batch   int // messages in a call to the broker at most; 0 is 1
	// backlog is how many messages are written while nothing is handled at all, where no machine
	// could write ten times as many as are handled.
	backlog int64
}

// scenarios with a page small enough for a backlog of seconds to be many times as large.
var scenarios = []scenario{
	{name: "slow_broker", writers: 4, perTx: 20, keys: 100, payload: 4 << 10, workers: 4, delay: 20 * time.Millisecond, page: 100},
	{name: "hot_key", writers: 1, perTx: 50, keys: 1, payload: 4 << 10, workers: 4, delay: 20 * time.Millisecond, page: 100},
	{name: "large_payloads", writers: 1, perTx: 1, keys: 8, payload: 1 << 20, workers: 2, page: 100, batch: 100, backlog: 120},
	{name: "deliveries", queue: true, writers: 2000, perTx: 1, keys: 2000, payload: 1 << 10, workers: 4, delay: 20 * time.Millisecond, page: 100},
}

// What a message costs in memory beside its payload, and how often a payload is there while it goes
// to or comes from the database: as it is, as the driver writes it in hexadecimal, and in buffers
// that grow by doubling.
const (
	perMessage  = 4 << 10
	readCopies  = 4
	writeCopies = 12
	// ground is for connections, prepared statements and the caches of an inbox.
	ground = 4 << 20
)

// bound is the live heap that the configuration allows, whatever the backlog. Two pages wait or are
// handled, with payloads that are small enough to be read along; others only while they are
// handled. What is being removed beside them, up to a page, is a few messages here, where handlers
// are slow. What is being written is the writers' own, but for one commit's worth of deliveries.
func (s scenario) bound() int64 {
	inline := s.payload
	if inline > drain.InlineBytes {
		inline = 0
	}
	batch := min(max(s.batch, 1)*s.payload, max(schedule.MaxBatchBytes, s.payload))
	read := 2*s.page*(inline+perMessage) + s.workers*batch*readCopies
	written := s.writers * s.perTx * (s.payload + perMessage)
	inCommit := min(s.writers*s.perTx*s.payload, spool.MaxIngestBytes)
	if s.payload > spool.MaxIngestBytes {
		inCommit = s.payload
	}
	if !s.queue { // each writer commits for itself
		inCommit = s.writers * s.perTx * s.payload
	}
	return int64(ground + read + written + inCommit*writeCopies)
}
