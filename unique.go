package postbox

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/unique"
)

// SkipIfWaiting gives a message a unique key. If a message with that key waits in the same outbox
// and topic when this one is published, this one is not stored, and Publish returns no error: see
// forwarder.WhenSkipped.
//
// A message waits from when it is stored until it has been published and removed, or is a dead
// letter. So the message for which this one was left out may have been published a moment before,
// with a content from before your transaction. Use [ReplaceWaiting] if consumers must see what your
// transaction changes.
//
// It returns the message.
func SkipIfWaiting(msg *message.Message, key string) *message.Message {
	return withUnique(msg, key, unique.Skip)
}

// ReplaceWaiting gives a message a unique key. If a message with that key waits in the same outbox
// and topic when this one is published, that one is deleted in the same transaction, and this one
// is stored as a new message, the last of its ordering key. A message that has failed stays, and is
// published before this one, since others of its ordering key may wait behind it.
//
// A forwarder that has read the old message already may still publish it, before the new one. The
// new one is always published: of all messages with the key, the one that was committed last is
// published last. That holds if all of them have the same ordering key, or none.
//
// It returns the message.
func ReplaceWaiting(msg *message.Message, key string) *message.Message {
	return withUnique(msg, key, unique.Replace)
}

func withUnique(msg *message.Message, key, mode string) *message.Message {
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.Metadata.Set(unique.Key, key)
	msg.Metadata.Set(unique.Mode, mode)
	return msg
}
