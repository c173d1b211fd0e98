package amqpbroker

import (
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// maxWindow bounds the messages that wait for their confirms together. More gain little, and room
// is kept for the return of each.
const maxWindow = 128

// sender is a channel in confirm mode. One call of Publish uses it at a time.
type sender struct {
	channel  *amqp091.Channel
	closed   chan *amqp091.Error
	returned chan amqp091.Return // has room for a whole window: the connection stands still while it is full
	spent    bool                // not every message was confirmed: see send
}

func newSender(conn *amqp091.Connection) (*sender, error) {
	channel, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotConnected, err)
	}
	s := &sender{
		channel:  channel,
		closed:   channel.NotifyClose(make(chan *amqp091.Error, 1)),
		returned: channel.NotifyReturn(make(chan amqp091.Return, maxWindow)),
	}
	if err := channel.Confirm(false); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotConnected, err)
	}
	return s, nil
}

func (s *sender) usable() bool { return !s.spent && !s.channel.IsClosed() }

// send sends a window of messages and waits until each is confirmed. If one was not confirmed, the
// channel is not used again: an answer may still come, or RabbitMQ may go on rejecting. When a
// quorum queue has lost its leader, an old channel can go on rejecting after the queue has
// recovered, while a new channel works.
func (s *sender) send(to destination, window []outgoing) error {
	for _, out := range window {
		if err := out.ctx.Err(); err != nil {
			return fmt.Errorf("%w: message %.60q not sent: %w", errNotConfirmed, out.id, err)
		}
	}
	confirms := make([]*amqp091.DeferredConfirmation, len(window))
	for i, out := range window {
		confirm, err := s.channel.PublishWithDeferredConfirm(to.exchange, to.routingKey, to.mandatory, false, out.publishing)
		if err != nil {
			return s.closeReason(to)
		}
		confirms[i] = confirm
	}
	s.spent = true
	refused := 0
	for i, confirm := range confirms {
		acked, err := confirm.WaitContext(window[i].ctx)
		switch {
		case err != nil:
			return fmt.Errorf("%w: message %.60q: %w", errNotConfirmed, window[i].id, err)
		case acked:
		case s.channel.IsClosed():
			return s.closeReason(to)
		default:
			refused++
		}
	}
	s.spent = refused > 0
	// RabbitMQ returns a message before it confirms it, so all returns of the window are here.
	if err := s.takeReturned(to); err != nil {
		return err
	}
	if refused > 0 {
		return fmt.Errorf("%w: %d of %d messages rejected", errNotConfirmed, refused, len(window))
	}
	return nil
}

// takeReturned empties the list of returned messages and reports them.
func (s *sender) takeReturned(to destination) error {
	var count int
	var last amqp091.Return
	for {
		select {
		case returned, open := <-s.returned:
			if open {
				count, last = count+1, returned
				continue
			}
		default:
		}
		if count == 0 {
			return nil
		}
		return fmt.Errorf("%w: %s returned %d of the messages: %s", errUnroutable, to, count, last.ReplyText)
	}
}

// closeReason tells why the channel is closed, or about to be: amqp091 marks it closed, or fails a
// write, a moment before it hands out the reason.
func (s *sender) closeReason(to destination) error {
	reason := <-s.closed
	switch {
	case reason == nil:
		return errNotConnected
	case !reason.Server || reason.Code == amqp091.ConnectionForced:
		return fmt.Errorf("%w: %w", errNotConnected, reason)
	case reason.Code == amqp091.NotFound:
		return fmt.Errorf("%w: %s: %w", errUnroutable, to, reason)
	case reason.Code == amqp091.PreconditionFailed, reason.Code == amqp091.ContentTooLarge:
		return fmt.Errorf("%w: %w", errMessageRefused, reason)
	default:
		return reason
	}
}
