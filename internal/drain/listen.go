package drain

import (
	"context"
	"sync"
	"time"

	"github.com/lib/pq"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Pauses between two attempts of lib/pq to reconnect.
const (
	listenRetryMin = 100 * time.Millisecond
	listenRetryMax = 30 * time.Second
)

// Listen wakes the drainer when another process announces a commit, through a connection of its
// own. It is optional: while the connection is down, polling finds the messages.
func (d *Drainer) Listen(ctx context.Context, dsn string) {
	h := &hearing{logger: d.logger}
	dialer := &listenDialer{ctx: ctx}
	listener := pq.NewDialListener(dialer, dsn, listenRetryMin, listenRetryMax, func(event pq.ListenerEventType, err error) {
		if ctx.Err() != nil {
			return // the dialer has closed the connection
		}
		switch event {
		case pq.ListenerEventDisconnected:
			h.disconnected(err)
		case pq.ListenerEventConnectionAttemptFailed:
			h.failed(err)
		case pq.ListenerEventConnected, pq.ListenerEventReconnected:
			dialer.connected()
			h.connected()
			d.Wake() // announcements during the interruption were lost
		}
	})
	defer func() { _ = listener.Close() }()
	go func() { // Listen waits for the first connection, and ends with Close
		if err := listener.Listen(d.spool.Channel()); err != nil && ctx.Err() == nil {
			h.failed(err)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-listener.Notify:
			d.Wake()
		}
	}
}

// hearing logs once that there is no LISTEN connection, and once that the connection is established
// again.
type hearing struct {
	logger watermill.LoggerAdapter

	mu     sync.Mutex
	logged bool // the missing connection has been logged
	lost   bool // there was a connection before
}

// disconnected records that a connection was lost.
func (h *hearing) disconnected(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = true
	h.logger.Info("Postbox lost its LISTEN connection, and continues to poll", watermill.LogFields{"err": spool.LogText(err)})
}

// failed records that there is no connection.
func (h *hearing) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.logged {
		h.logger.Debug("Postbox still cannot LISTEN, and continues to poll", watermill.LogFields{"err": spool.LogText(err)})
		return
	}
	h.logged = true
	h.logger.Error("Postbox cannot LISTEN at ListenDSN for messages of other processes and goes on trying: until it can, it finds them by polling",
		dialect.HideAddress(err), nil)
}

// connected records that there is a connection.
func (h *hearing) connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.logged || h.lost {
		h.logged, h.lost = false, false
		h.logger.Info("Postbox can LISTEN now", nil)
	}
}
