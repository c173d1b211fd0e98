package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// codedError is an application's error that has a code of its own, and a state.
type codedError struct {
	number int
	state  string
}

func (e codedError) Error() string    { return fmt.Sprint("code ", e.number, e.state) }
func (e codedError) Code() int        { return e.number }
func (e codedError) SQLState() string { return e.state }

// codes are errors of applications. To SQLite, 5 is a busy file and 13 a full disk; to PostgreSQL,
// 40001 is a conflict and 57P01 a server that shuts down.
var codes = map[string]error{
	"5": codedError{number: 5}, "13": codedError{number: 13}, "40001": codedError{state: "40001"}, "57P01": codedError{state: "57P01"},
}

func TestQueue_G7_codes_of_an_application_are_no_codes_of_the_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("5", "13", "40001", "57P01")
		var runs inboxtest.Journal
		b.Start(inboxtest.Quick(inboxtest.Transactional), func(msg *message.Message) error {
			runs.Add(msg.UUID)
			return errors.Join(inboxtest.ErrHandler, fmt.Errorf("call the service: %w", codes[msg.UUID]))
		})
		b.Drained()
		require.Len(t, b.Dead(), len(codes))
		for code := range codes {
			require.Equal(t, 3, runs.Times(code), "each run of the handler is an attempt")
		}
	})
}

// The same in an inbox, in a transaction of its own and in a savepoint.
func TestStore_G7_codes_of_an_application_are_no_codes_of_the_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		for name, within := range b.places() {
			for code, coded := range codes {
				runs := 0
				err := within(func(ctx context.Context) error {
					_, err := b.Store.Once(ctx, inboxstore.Key{Consumer: name, MessageID: code}, func(context.Context) error {
						runs++
						return fmt.Errorf("call the service: %w", coded)
					})
					return err
				})
				var failure *inboxstore.HandlerError
				require.ErrorAs(t, err, &failure, "%s, %s", name, code)
				require.ErrorIs(t, err, coded, "%s, %s", name, code)
				require.Equal(t, 1, runs, "%s, %s", name, code)
			}
		}
	})
}
