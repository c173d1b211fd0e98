package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

func TestQueueConfig_bad_input_says_what_to_do(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	store := inboxtest.StoreFor(t, database, database.DB, nil)
	_, err := queue.NewSubscriber(nil, queue.Config{}, nil)
	require.Error(t, err)
	_, err = queue.NewSubscriber(store, queue.Config{}, nil)
	require.NoError(t, err, "the zero value is the default")
	for want, config := range map[string]queue.Config{
		"Concurrency: -1":                                        {Concurrency: -1},
		"PageSize: -1":                                           {Tuning: postbox.Tuning{PageSize: -1}},
		"MaxBytesInFlight: -1":                                   {Tuning: postbox.Tuning{MaxBytesInFlight: -1}},
		"Concurrency: 1000000 is more than 10000":                {Concurrency: 1_000_000},
		"MicroBatch: -1":                                         {MicroBatch: -1},
		"MicroBatch: 9 is more than PageSize, 5":                 {MicroBatch: 9, Tuning: postbox.Tuning{PageSize: 5}},
		"PollMin and PollMax: 2s is more than 1s":                {Tuning: postbox.Tuning{PollMin: 2 * time.Second, PollMax: time.Second}},
		"PollMin: -1ns is not positive":                          {Tuning: postbox.Tuning{PollMin: -1}},
		"ProbeMin and ProbeMax: 1m0s is more than 1s":            {Tuning: postbox.Tuning{ProbeMin: time.Minute, ProbeMax: time.Second}},
		"Lease: 999ms is less than a second":                     {Tuning: postbox.Tuning{Lease: 999 * time.Millisecond}},
		"History: -1ns is negative":                              {History: -1},
		"ListenDSN: sqlite has no LISTEN":                        {Tuning: postbox.Tuning{ListenDSN: "postgres://"}},
		"Poison: set both Outbox and Topic":                      {Poison: queue.Poison{Topic: "poison"}},
		"Poison: set both":                                       {Poison: queue.Poison{Outbox: make(sink)}},
		"Poison.Outbox: a queue_test.sink publishes immediately": {Poison: queue.Poison{Outbox: make(sink), Topic: "poison"}},
		"Poison.Outbox: it is a nil *forwarder.Publisher":        {Poison: queue.Poison{Outbox: (*forwarder.Publisher)(nil), Topic: "poison"}},
		"Retry: Attempts: -2":                                    {Retry: postbox.RetryProfile{Attempts: -2}},
		"queue subscriber: invalid config: PageSize: -":          {Tuning: postbox.Tuning{PageSize: -7}},
		"Limits: Total: MaxConcurrent: -1":                       {Limits: postbox.Limits{Total: postbox.Limit{MaxConcurrent: -1}}},
		"Limits: Topics is for an outbox":                        {Limits: postbox.Limits{Topics: map[string]postbox.Limit{"a": {}}}},
	} {
		_, err := queue.NewSubscriber(store, config, nil)
		require.ErrorContains(t, err, want)
	}
	all := queue.Config{Concurrency: -1, Tuning: postbox.Tuning{PollMin: -1, Lease: 1}, Poison: queue.Poison{Topic: "poison"}, Retry: postbox.RetryProfile{Jitter: 2}}
	_, err = queue.NewSubscriber(store, all, nil)
	for _, want := range []string{"Concurrency", "PollMin", "Lease", "Poison", "Jitter"} {
		require.ErrorContains(t, err, want, "all at once")
	}
}

func TestNew_refuses_a_store_that_New_did_not_make(t *testing.T) {
	t.Parallel()
	for _, store := range []*inboxstore.Store{nil, {}} {
		_, err := queue.NewSubscriber(store, queue.Config{}, nil)
		require.ErrorContains(t, err, "was not made by inboxstore.New")
		_, err = queue.NewBatch(store, "q", func(context.Context, []*message.Message) error { return nil }, queue.BatchConfig{}, nil)
		require.ErrorContains(t, err, "was not made by inboxstore.New")
	}
}
