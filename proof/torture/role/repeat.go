package role

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// Repeat publishes messages past the outbox, and returns those that the brokers accepted.
func (c Config) Repeat(intents []ledger.Intent) (repeated []ledger.Intent, err error) {
	to, err := (&process{Config: c, logger: watermill.NopLogger{}}).publishers()
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, i := range intents {
		msg, err := newMessage(i, 0)
		if err == nil {
			err = to.Publish(i.Topic, msg)
		}
		if err != nil {
			problems = append(problems, err)
			break
		}
		repeated = append(repeated, i)
	}
	return repeated, errors.Join(append(problems, to.Close())...)
}
