// Package given checks the arguments that users pass to the constructors of Postbox.
package given

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Nil reports whether the value is nil, or an interface that holds a nil pointer, which would panic
// at the first message.
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

// Outbox returns an error unless the publisher writes in the transaction of each message. No
// publisher is allowed too.
func Outbox(publisher message.Publisher) error {
	switch {
	case publisher == nil:
		return nil
	case Nil(publisher):
		return fmt.Errorf("it is a nil %T", publisher)
	case PublishesInTx(publisher):
		return nil
	}
	return fmt.Errorf("a %T publishes immediately, even if the transaction of the handler is rolled back later: %w", publisher, errNoOutbox)
}

var errNoOutbox = errors.New("use a forwarder.Publisher, which forwarder.Decorate can decorate, and let a forwarder send the messages to the broker; " +
	"if your own publisher writes in the transaction, or replaces such a publisher in a test, give it a method PublishesInTx() bool")

// PublishesInTx says whether the publisher writes in the transaction of each message.
func PublishesInTx(publisher message.Publisher) bool {
	transactional, ok := publisher.(interface{ PublishesInTx() bool })
	return ok && transactional.PublishesInTx()
}
