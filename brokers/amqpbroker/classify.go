package amqpbroker

import (
	"errors"

	amqp091 "github.com/rabbitmq/amqp091-go"

	postbox "github.com/postbox-go/watermill-postbox"
)

// outages are the errors of a [Publisher] that are not the fault of a message.
var outages = []error{errNotConnected, errBlocked, errNotConfirmed, errUnroutable, postbox.ErrClosed}

// serverExceptions are the reasons with which RabbitMQ closes a channel or a connection and which
// show what is at fault. The topology and the permissions are an operator's matter, and an outage
// for every message of the destination. Protocol errors (501, 502, 503, 505, 540) are left out
// because an unusual message can cause them, and 406 because it stands for a refused message as
// well as for a mismatch of the topology.
var serverExceptions = map[int]postbox.ErrorClass{
	amqp091.ContentTooLarge: postbox.MessageFault,

	amqp091.NoRoute:          postbox.Outage,
	amqp091.NoConsumers:      postbox.Outage,
	amqp091.ConnectionForced: postbox.Outage,
	amqp091.InvalidPath:      postbox.Outage,
	amqp091.AccessRefused:    postbox.Outage,
	amqp091.NotFound:         postbox.Outage,
	amqp091.ResourceLocked:   postbox.Outage,
	amqp091.ChannelError:     postbox.Outage,
	amqp091.ResourceError:    postbox.Outage,
	amqp091.NotAllowed:       postbox.Outage,
	amqp091.InternalError:    postbox.Outage,
}

// Classify returns the [postbox.ErrorClass] of errors of a [Publisher], and of amqp091-go in
// general.
//
// A lost connection, a broker that takes no messages, a missing confirm, and a missing queue or
// permission are outages: the message is not at fault, so it waits until the broker or its setup is
// right, and no attempt is counted. A message that RabbitMQ does not take, or that its protocol
// cannot carry, is at fault itself. All other errors are Unclassified, and so is nil.
//
// Classify includes [postbox.ClassifyNetwork], unwraps errors, and never reads an error's text. So
// it does not know watermill-amqp's own "not connected to AMQP" and "delivery not confirmed", which
// are only text; [NewPublisher] returns a publisher whose errors have types.
func Classify(err error) postbox.ErrorClass {
	if errors.Is(err, errMessageRefused) || errors.Is(err, amqp091.ErrFieldType) {
		return postbox.MessageFault
	}
	if class := postbox.ClassifyNetwork(err); class != postbox.Unclassified {
		return class
	}
	for _, outage := range outages {
		if errors.Is(err, outage) {
			return postbox.Outage
		}
	}
	var exception *amqp091.Error
	if !errors.As(err, &exception) {
		return postbox.Unclassified
	}
	if !exception.Server {
		return postbox.Outage // the client lost the connection, or gave it up; a read error has code 501 there
	}
	return serverExceptions[exception.Code]
}
