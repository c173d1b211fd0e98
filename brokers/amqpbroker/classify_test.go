package amqpbroker_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	fromServer := func(code int) error { return &amqp091.Error{Code: code, Server: true} }
	for class, all := range map[postbox.ErrorClass][]error{
		postbox.Outage: {
			amqpbroker.ErrNotConnected, amqpbroker.ErrBlocked, amqpbroker.ErrNotConfirmed, amqpbroker.ErrUnroutable,
			fmt.Errorf("%w: %w", amqpbroker.ErrUnroutable, fromServer(amqp091.PreconditionFailed)),
			fmt.Errorf("%w: %w", amqpbroker.ErrNotConfirmed, context.Canceled),
			postbox.ErrClosed, context.DeadlineExceeded, syscall.ECONNREFUSED,
			amqp091.ErrClosed, amqp091.ErrChannelMax, amqp091.ErrCredentials, amqp091.ErrSASL, amqp091.ErrVhost,
			&amqp091.Error{Code: amqp091.FrameError, Reason: "read: connection reset by peer"},
			fromServer(amqp091.ConnectionForced), fromServer(amqp091.InternalError), fromServer(amqp091.ResourceError),
			fromServer(amqp091.AccessRefused), fromServer(amqp091.NotFound), fromServer(amqp091.ResourceLocked),
			fromServer(amqp091.NotAllowed), fromServer(amqp091.NoRoute), fromServer(amqp091.NoConsumers),
			fromServer(amqp091.ChannelError), fromServer(amqp091.InvalidPath),
		},
		postbox.MessageFault: {
			amqpbroker.ErrMessageRefused, amqp091.ErrFieldType, fromServer(amqp091.ContentTooLarge),
			fmt.Errorf("%w: %w", amqpbroker.ErrMessageRefused, fromServer(amqp091.PreconditionFailed)),
			postbox.Permanent(errors.New("anything")), postbox.Permanent(amqp091.ErrClosed),
		},
		postbox.Unclassified: {
			nil, errors.New("something else"), context.Canceled,
			fromServer(amqp091.PreconditionFailed), fromServer(amqp091.FrameError), fromServer(amqp091.SyntaxError),
			fromServer(amqp091.CommandInvalid), fromServer(amqp091.UnexpectedFrame), fromServer(amqp091.NotImplemented),
		},
	} {
		for _, err := range all {
			require.Equal(t, class, amqpbroker.Classify(err), "%T %v", err, err)
			if err != nil {
				require.Equal(t, class, amqpbroker.Classify(fmt.Errorf("publish: %w", err)), "wrapped %T %v", err, err)
			}
		}
	}
}
