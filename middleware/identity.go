package middleware

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// errNoMessageID is the error of a message without an id, unless the config says how to name it.
var errNoMessageID = postbox.Permanent(errors.New("the message has no UUID that identifies it: set WithoutID of InboxConfig or DeferConfig to kafkabroker.Coordinates or middleware.PayloadHash"))

// nameWithoutID returns what withoutID says of a message without an id. It is an error to say
// nothing.
func nameWithoutID(msg *message.Message, withoutID func(msg *message.Message) (string, error)) (name string, err error) {
	if withoutID == nil {
		return "", errNoMessageID
	}
	err = spool.Recovered(func() (err error) {
		name, err = withoutID(msg)
		return err
	})
	if err == nil && name == "" {
		err = errNoMessageID
	}
	return name, err
}

// PayloadHash identifies the message by the SHA-256 of its payload. Two messages with equal
// payloads are then one message. That is right for facts that carry their own identity, and wrong
// for "add one".
func PayloadHash(msg *message.Message) (string, error) {
	sum := sha256.Sum256(msg.Payload)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}
