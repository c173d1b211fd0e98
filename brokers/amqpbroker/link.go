package amqpbroker

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
)

const (
	dialTimeout  = 10 * time.Second
	closeTimeout = 5 * time.Second

	// maxIdle bounds the channels kept for later calls. A channel costs a few processes in
	// RabbitMQ, and opening one in confirm mode costs two round trips.
	maxIdle = 64
)

// link is one connection of a publisher, with the facts that are known about its broker. A lost
// connection is thrown away together with these facts.
type link struct {
	conn           *amqp091.Connection
	socket         net.Conn // closing it ends the connection whatever the broker does
	confirmTimeout time.Duration
	blocked        atomic.Bool // RabbitMQ takes no messages
	timedOut       atomic.Bool // dropped because nothing was confirmed
	idle           chan *sender

	mu       sync.Mutex // guards declared
	declared map[string]bool
}

func dial(config amqp.ConnectionConfig, confirmTimeout time.Duration) (*link, error) {
	l := &link{
		confirmTimeout: confirmTimeout,
		idle:           make(chan *sender, maxIdle),
		declared:       make(map[string]bool),
	}
	settings := settings(config)
	connect := settings.Dial
	settings.Dial = func(network, address string) (net.Conn, error) {
		var err error
		l.socket, err = connect(network, address)
		return l.socket, err
	}

	var err error
	if l.conn, err = amqp091.DialConfig(config.AmqpURI, settings); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotConnected, err)
	}
	notices := l.conn.NotifyBlocked(make(chan amqp091.Blocking, 1))
	go l.watch(notices) // ends with the connection
	return l, nil
}

// settings returns those of the configuration, completed.
func settings(config amqp.ConnectionConfig) amqp091.Config {
	var settings amqp091.Config
	if config.AmqpConfig != nil {
		settings = *config.AmqpConfig
	}
	if settings.TLSClientConfig == nil {
		settings.TLSClientConfig = config.TLSConfig
	}
	if settings.Locale == "" {
		settings.Locale = "en_US"
	}
	if settings.Properties == nil {
		settings.Properties = amqp091.NewConnectionProperties()
		settings.Properties.SetClientConnectionName("postbox publisher")
	}
	if settings.Dial == nil {
		settings.Dial = amqp091.DefaultDial(dialTimeout)
	}
	return settings
}

func (l *link) watch(notices <-chan amqp091.Blocking) {
	for notice := range notices {
		l.blocked.Store(notice.Active)
	}
}

// close closes the connection in the regular way, but does not wait long for the broker.
func (l *link) close() {
	impatience := time.AfterFunc(closeTimeout, func() { _ = l.socket.Close() })
	defer impatience.Stop()
	_ = l.conn.Close() // closed either way, and every message was confirmed or reported
}

// publish sends a batch and waits for its confirms. No step lasts longer than the confirm timeout:
// then the socket is closed, which fails every write and every wait on this connection.
func (l *link) publish(config amqp.Config, to destination, batch []outgoing) error {
	if l.blocked.Load() {
		return errBlocked
	}
	for _, out := range batch {
		if err := out.fits(l.conn.Config.FrameSize); err != nil {
			return err
		}
	}
	watchdog := time.AfterFunc(l.confirmTimeout, func() {
		l.timedOut.Store(true)
		_ = l.socket.Close()
	})
	defer watchdog.Stop()

	if err := l.declare(config, to.exchange); err != nil {
		return l.explain(err)
	}
	s, err := l.sender()
	if err != nil {
		return l.explain(err)
	}
	defer l.release(s)
	for len(batch) > 0 {
		var window []outgoing
		window, batch = nextWindow(batch)
		watchdog.Reset(l.confirmTimeout)
		if err := s.send(to, window); err != nil {
			if errors.Is(err, errUnroutable) {
				l.forget(to.exchange)
			}
			return l.explain(err)
		}
	}
	return nil
}

// explain says in the error of a lost connection whether it was dropped here because no answer
// came.
func (l *link) explain(err error) error {
	if l.timedOut.Load() {
		return fmt.Errorf("%w within %s, connection dropped: %w", errNotConfirmed, l.confirmTimeout, err)
	}
	return err
}

// declare declares the exchange, once on each connection. It uses a channel of its own, so that an
// error on a sender's channel is known to be about the messages.
func (l *link) declare(config amqp.Config, exchange string) error {
	if exchange == "" || l.isDeclared(exchange) {
		return nil
	}
	channel, err := l.conn.Channel()
	if err != nil {
		return fmt.Errorf("%w: %w", errNotConnected, err)
	}
	if err := config.TopologyBuilder.ExchangeDeclare(channel, exchange, config); err != nil {
		kind := errUnroutable
		if l.conn.IsClosed() {
			kind = errNotConnected
		} else {
			_ = channel.Close() // the broker has closed it if the error is its own
		}
		return fmt.Errorf("%w: declare exchange %.300q: %w", kind, exchange, err)
	}
	if err := channel.Close(); err != nil {
		return fmt.Errorf("%w: %w", errNotConnected, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.declared[exchange] = true
	return nil
}

func (l *link) isDeclared(exchange string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.declared[exchange]
}

// forget makes the next publish declare the exchange again: an operator may have deleted it.
func (l *link) forget(exchange string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.declared, exchange)
}

// sender returns an idle channel, or opens one.
func (l *link) sender() (*sender, error) {
	for {
		select {
		case s := <-l.idle:
			if s.usable() {
				return s, nil
			}
		default:
			return newSender(l.conn)
		}
	}
}

// release keeps a channel for later, or closes it if it is spent or there are enough.
func (l *link) release(s *sender) {
	if s.usable() {
		select {
		case l.idle <- s:
			return
		default:
		}
	}
	_ = s.channel.Close() // closed either way, and the outcome of its messages is known
}
