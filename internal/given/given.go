// Package given checks the arguments that users pass to the constructors of Postbox.
package given

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Nil reports whether the value is nil, or an interface that holds a nil pointer, which would panic at the first
// message.
func Nil(value any) bool {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Pointer, reflect.Func:
		return v.IsNil()
	case reflect.Invalid:
		return true
	default:
		return false
	}
}

// Outbox returns an error unless the publisher writes in the transaction of each message. No publisher is allowed too.
func Outbox(publisher message.Publisher) error {
	switch {
	case publisher == nil:
		return nil
	case Nil(publisher):
		return fmt.Errorf("it is a nil %T", publisher)
	case postbox.PublishesInTx(publisher):
		return nil
	}
	return fmt.Errorf("a %T publishes at once, also where the transaction of the handler is rolled back afterwards: %w", publisher, errNoOutbox)
}

var errNoOutbox = errors.New("use a forwarder.Publisher, decorated by forwarder.Decorate if at all, and let a forwarder send the messages to the broker; " +
	"a publisher of yours that does write in the transaction, or stands in for one in a test, says so by postbox.TransactionalPublisher")
