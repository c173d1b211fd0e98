package forwarder_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const century = 100 * 365 * 24 * time.Hour

func TestNewPublisher_refuses_an_expectation_of_centuries(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	for within, want := range map[time.Duration]string{
		0: "Within: 0s is less than 1ms", time.Millisecond - 1: "is less than 1ms", century + 1: "is more than 100 years", math.MaxInt64: "is more than 100 years",
	} {
		_, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{
			Receipts: []forwarder.Expectation{{Topic: "orders", Consumers: []string{"billing"}, Within: within}},
		}, nil)
		require.ErrorContains(t, err, `Receipts: topic "orders": Within: `)
		require.ErrorContains(t, err, want)
	}
}
