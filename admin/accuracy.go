package admin

import (
	"github.com/postbox-go/watermill-postbox/internal/counts"
)

// Accuracy says how a number of messages was found. Up to 10,000 messages are counted, which costs some milliseconds. What is above
// comes from a count that forwarders, subscribers and inboxes store from time to time.
type Accuracy string

const (
	// Exact means that the messages were counted by the call.
	Exact Accuracy = Accuracy(counts.Exact)
	// Counted means that there are more than 10,000, and that the number is from an earlier count, see [QueueInfo.CountedAge]. While that ran, messages
	// may have moved from one state to another, so that they were counted twice or not at all.
	Counted Accuracy = Accuracy(counts.Counted)
	// AtLeast means that there are at least that many, and that no process has counted them yet. With a forwarder, a subscriber or an inbox running
	// that takes about a minute, or several minutes with many millions.
	AtLeast Accuracy = Accuracy(counts.AtLeast)
)

// Accuracies are the accuracies of the numbers in a [QueueInfo]. A sum is as accurate as the least accurate of its parts.
type Accuracies struct {
	Pending, Due, Failing, Parked, Dead, Done Accuracy
}
