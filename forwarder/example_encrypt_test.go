package forwarder_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

var errNoKey = errors.New("the customer has no key, or no longer")

// keysOfCustomers is where your service keeps the key of each customer. To forget a customer,
// delete the key: what is stored or backed up anywhere can no longer be read.
type keysOfCustomers map[string]cipher.AEAD

// seal encrypts payloads before they reach the outbox. The id binds each to its message.
func (k keysOfCustomers) seal(outbox message.Publisher) (message.Publisher, error) {
	return sealing{outbox, k}, nil
}

// open decrypts payloads for a handler. Add it inside of the inbox.
func (k keysOfCustomers) open(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		key, found := k[msg.Metadata.Get("customer")]
		if !found {
			return nil, postbox.Permanent(errNoKey)
		}
		payload, err := key.Open(nil, nil, msg.Payload, nil)
		if err != nil {
			return nil, postbox.Permanent(err)
		}
		msg.Payload = payload
		return h(msg)
	}
}

type sealing struct {
	message.Publisher

	keys keysOfCustomers
}

// Publish seals copies, so that the messages of the caller stay as they are.
func (s sealing) Publish(topic string, messages ...*message.Message) error {
	sealed := make([]*message.Message, len(messages))
	for i, msg := range messages {
		if sealed[i] = msg; msg.Metadata.Get("postbox_receipt") != "" { // it has no payload of a customer
			continue
		}
		key, found := s.keys[msg.Metadata.Get("customer")]
		if !found {
			return errNoKey
		}
		sealed[i] = msg.Copy()
		sealed[i].SetContext(msg.Context()) // the transaction is in it
		sealed[i].Payload = key.Seal(nil, nil, msg.Payload, nil)
	}
	return s.Publisher.Publish(topic, sealed...)
}

// The outbox has a payload that only the customer's key opens.
func Example_encrypt() {
	ctx := context.Background()
	db, remove := openShop(ctx)
	defer remove()
	block, err := aes.NewCipher([]byte("32 bytes, from your secret store"))
	must(err)
	key, err := cipher.NewGCMWithRandomNonce(block)
	must(err)
	keys := keysOfCustomers{"customer 7": key}

	plain, err := forwarder.NewPublisher(postbox.Database{DB: db, Dialect: postbox.SQLite}, forwarder.PublisherConfig{}, nil)
	must(err)
	defer func() { _ = plain.Close() }()

	outbox, err := forwarder.Decorate(plain, keys.seal)

	must(err)
	msg := message.NewMessage(postbox.NewMessageID(), []byte("Mrs Miller, 7 Mill Lane"))
	msg.Metadata.Set("customer", "customer 7")
	must(postbox.InTx(ctx, db, func(ctx context.Context, _ *sql.Tx) error {
		msg.SetContext(ctx)
		return outbox.Publish("customers", msg)
	}))

	var stored []byte
	must(db.QueryRowContext(ctx, "SELECT payload FROM postbox_messages").Scan(&stored))
	handle := keys.open(func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("handled:", string(msg.Payload))
		return nil, nil
	})
	received := message.NewMessage(msg.UUID, stored)
	received.Metadata = msg.Metadata
	fmt.Println("stored in the clear:", string(stored) == string(msg.Payload))
	_, err = handle(received)
	must(err)

	delete(keys, "customer 7")
	received.Payload = stored
	_, err = handle(received)
	fmt.Println("later:", errors.Is(err, postbox.ErrPermanent), errors.Is(err, errNoKey))
	// Output:
	// stored in the clear: false
	// handled: Mrs Miller, 7 Mill Lane
	// later: true true
}
