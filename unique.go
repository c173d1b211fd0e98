package postbox

import "github.com/ThreeDotsLabs/watermill/message"

// Metadata that [SkipIfWaiting] and [ReplaceWaiting] set, for code that sets metadata by itself. A
// Publisher reads both and does not store them, so they do not reach the broker.
const (
	// UniqueKey holds the unique key of a message in its outbox and topic.
	UniqueKey = "postbox_unique_key"
	// UniqueMode says what happens if a message with the key waits already: [UniqueSkip] or
	// [UniqueReplace].
	UniqueMode = "postbox_unique_mode"
)

// The values of [UniqueMode].
const (
	UniqueSkip    = "skip"
	UniqueReplace = "replace"
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
	return unique(msg, key, UniqueSkip)
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
	return unique(msg, key, UniqueReplace)
}

func unique(msg *message.Message, key, mode string) *message.Message {
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.Metadata.Set(UniqueKey, key)
	msg.Metadata.Set(UniqueMode, mode)
	return msg
}
