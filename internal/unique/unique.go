// Package unique names the metadata that postbox.SkipIfWaiting and postbox.ReplaceWaiting set. A
// publisher reads it and does not store it, so it does not reach the broker.
package unique

const (
	// Key holds the unique key of a message in its outbox and topic.
	Key = "postbox_unique_key"
	// Mode says what happens if a message with the key waits already.
	Mode = "postbox_unique_mode"
	// Skip leaves out the new message.
	Skip = "skip"
	// Replace lets it take the place of the one that waits.
	Replace = "replace"
)
