package forwarder

import (
	"context"
	"time"

	"github.com/lib/pq"

	"github.com/ThreeDotsLabs/watermill"
)

// Pauses between two tries of lib/pq to connect again.
const (
	listenRetryMin = 100 * time.Millisecond
	listenRetryMax = 30 * time.Second
)

// listen wakes the drainer when another process announces a commit. It is a convenience: while the connection
// is away, polling finds the messages.
func (f *Forwarder) listen(ctx context.Context) {
	channel := f.spool.Channel()
	listener := pq.NewListener(f.config.ListenDSN, listenRetryMin, listenRetryMax, func(event pq.ListenerEventType, err error) {
		switch event {
		case pq.ListenerEventDisconnected:
			f.logger.Info("Postbox lost its LISTEN connection, polling goes on", watermill.LogFields{"err": errorText(err)})
		case pq.ListenerEventConnectionAttemptFailed:
			f.logger.Debug("Postbox cannot LISTEN, polling goes on", watermill.LogFields{"err": errorText(err)})
		case pq.ListenerEventConnected, pq.ListenerEventReconnected:
			f.drainer.Wake() // what was announced meanwhile was not heard
		}
	})
	defer func() { _ = listener.Close() }()
	go func() { // Listen waits for the first connection, and ends with Close
		if err := listener.Listen(channel); err != nil {
			f.logger.Debug("Postbox does not LISTEN", watermill.LogFields{"err": err.Error()})
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-listener.Notify:
			f.drainer.Wake()
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
