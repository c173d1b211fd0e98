package overload

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
)

const topic = "orders"

// outbox is a load of transactions that write into an outbox, before a slow broker.
type outbox struct {
	where     *place.Place
	scenario  scenario
	publisher *forwarder.Publisher
	forwarder *forwarder.Forwarder
	ended     chan error
	sink      *sink

	filling   []byte
	next      []int64 // number of each key
	turn      []int   // of each writer: which of its keys is next
	committed atomic.Int64
}

func startOutbox(where *place.Place, s scenario, g *gate) (*outbox, error) {
	o := &outbox{
		where: where, scenario: s, ended: make(chan error, 1), filling: place.Filling(s.payload),
		next: make([]int64, s.keys), turn: make([]int, s.writers), sink: &sink{gate: g, order: order{last: map[string]int64{}}},
	}
	var err error
	db := postbox.Database{DB: where.DB, Dialect: postbox.PostgreSQL}
	if o.publisher, err = forwarder.NewPublisher(db, forwarder.PublisherConfig{}, nil); err != nil {
		return nil, err
	}
	config := forwarder.Config{Concurrency: s.workers, Tuning: postbox.Tuning{PageSize: s.page}, BatchSize: s.batch}
	if o.forwarder, err = forwarder.New(db, o.sink, config, nil); err != nil {
		return nil, err
	}
	go func() { o.ended <- o.forwarder.Run(context.Background()) }()
	return o, nil
}

// write runs a transaction. The keys of writer i are i, i + writers, and so on, in turn.
func (o *outbox) write(ctx context.Context, writer int) (int, error) {
	messages := make([]*message.Message, o.scenario.perTx)
	for i := range messages {
		key := writer + o.turn[writer]*o.scenario.writers
		if key >= o.scenario.keys {
			key, o.turn[writer] = writer, 0
		}
		o.turn[writer]++
		o.next[key]++
		messages[i] = place.Message(fmt.Sprint("key-", key), o.next[key], o.filling)
	}
	err := postbox.InTx(ctx, o.where.DB, func(ctx context.Context, _ *sql.Tx) error {
		for _, msg := range messages {
			msg.SetContext(ctx)
		}
		return o.publisher.Publish(topic, messages...)
	})
	if err != nil {
		return 0, err
	}
	o.committed.Add(int64(len(messages)))
	return len(messages), nil
}

func (o *outbox) account(context.Context) (place.Account, error) {
	o.sink.order.mu.Lock()
	defer o.sink.order.mu.Unlock()
	committed, seen := o.committed.Load(), &o.sink.order
	return place.Account{
		Committed: committed, Applied: seen.came, Lost: committed - (seen.came - seen.twice), Twice: seen.twice, Disordered: seen.disordered,
	}, nil
}

func (o *outbox) close() error {
	return errors.Join(o.forwarder.Close(), <-o.ended, o.publisher.Close())
}

// sink is a broker that takes its time.
type sink struct {
	gate  *gate
	order order
}

func (s *sink) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		key, seq, err := place.Number(msg)
		if err != nil {
			return err
		}
		if err := s.gate.pass(msg.Context()); err != nil {
			return err
		}
		s.order.note(key, seq)
	}
	return nil
}

func (s *sink) Close() error { return nil }
