package spool

import (
	"context"
	"time"

	"github.com/lib/pq"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Pauses between two tries of lib/pq to connect again.
const (
	listenRetryMin = 100 * time.Millisecond
	listenRetryMax = 30 * time.Second
)

// Listen wakes the drainer when another process announces a commit, through a connection of its own. It is a convenience: while the connection
// is away, polling finds the messages.
func (d *Drainer) Listen(ctx context.Context, dsn string) {
	listener := pq.NewListener(dsn, listenRetryMin, listenRetryMax, func(event pq.ListenerEventType, err error) {
		switch event {
		case pq.ListenerEventDisconnected:
			d.logger.Info("Postbox lost its LISTEN connection, polling goes on", watermill.LogFields{"err": errorText(err)})
		case pq.ListenerEventConnectionAttemptFailed:
			d.logger.Debug("Postbox cannot LISTEN, polling goes on", watermill.LogFields{"err": errorText(err)})
		case pq.ListenerEventConnected, pq.ListenerEventReconnected:
			d.Wake() // what was announced meanwhile was not heard
		}
	})
	defer func() { _ = listener.Close() }()
	go func() { // Listen waits for the first connection, and ends with Close
		if err := listener.Listen(d.spool.Channel()); err != nil {
			d.logger.Debug("Postbox does not LISTEN", watermill.LogFields{"err": errorText(err)})
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

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return dialect.HideAddress(err).Error()
}
