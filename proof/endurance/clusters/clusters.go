// Package clusters kills the leader of a broker's cluster again and again, while messages go from
// an outbox through the broker to an inbox: a topic of Kafka on three brokers, a quorum queue of
// RabbitMQ on three nodes. What the database committed has its effect once, and each key keeps its
// order. The database may be a cluster, too: nodes of Galera die while postbox prove works on them.
package clusters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
)

// Config says how long, and with which clusters.
type Config struct {
	// Duration of each run, without the start of the cluster and the time to catch up.
	Duration time.Duration
	// Only is the name of one cluster, or empty for all.
	Only string
	Out  io.Writer
}

const (
	connections = 24
	// healthy is the pause between two faults, and away how long a node stays dead after another
	// one has taken over.
	healthy, away = 8 * time.Second, 5 * time.Second
	// takeover is how long the cluster may take to have another leader and to pass messages on,
	// rejoin how long to be whole.
	takeover, rejoin = time.Minute, 90 * time.Second
	// catchUp is how long it may take at the end until all is applied.
	catchUp   = 2 * time.Minute
	pollEvery = 200 * time.Millisecond
)

// opener starts a cluster with the topic.
type opener func(ctx context.Context, topic string) (*broker, error)

var (
	names   = []string{"kafka", "rabbitmq", "galera"}
	runners = map[string]func(ctx context.Context, config Config) error{
		"kafka": func(ctx context.Context, config Config) error { return runBroker(ctx, config, "kafka", openKafka) },
		"rabbitmq": func(ctx context.Context, config Config) error {
			return runBroker(ctx, config, "rabbitmq", openRabbitMQ)
		},
		"galera": runGalera,
	}
)

// Run goes through the clusters, prints a line for each, and returns what went wrong.
func Run(ctx context.Context, config Config) error {
	if config.Duration <= 0 {
		return errors.New("duration must be positive")
	}
	chosen := names
	if config.Only != "" {
		chosen = []string{config.Only}
	}
	var problems []error
	for _, name := range chosen {
		runOne, known := runners[name]
		if !known {
			return fmt.Errorf("there is no cluster of %q", name)
		}
		if err := runOne(ctx, config); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// runBroker prepares a broker and a database, and clears them away.
func runBroker(ctx context.Context, config Config, name string, open opener) (err error) {
	where, err := place.Open(ctx, connections)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, where.Close()) }()
	topic := fmt.Sprintf("clusters-%x", time.Now().UnixNano())
	to, err := open(ctx, topic)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.nodes.Close()) }()
	f, err := startFlow(ctx, where, to, topic)
	if err != nil {
		return err
	}
	r := &run{config: config, name: name, where: where, nodes: to.nodes, topic: topic, flow: f}
	defer func() { err = errors.Join(err, f.close()) }()
	return r.run(ctx)
}

// run is one broker's.
type run struct {
	config Config
	name   string
	where  *place.Place
	nodes  nodes
	topic  string
	flow   *flow
	kills  int
}

func (r *run) run(ctx context.Context) error {
	steady, stop := context.WithCancel(ctx)
	var both errgroup.Group
	both.Go(func() error { return r.flow.orders.Produce(steady, 0, 1, time.Second/rate) })
	broken := r.breakLeaders(ctx)
	stop()
	if err := errors.Join(broken, both.Wait()); err != nil {
		return err
	}
	began := time.Now()
	account, err := r.settle(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.config.Out, "RESULT broker=%s kills=%d written=%d applied=%d lost=%d applied_twice=%d order_violations=%d caught_up=%s\n",
		r.name, r.kills, account.Committed, account.Applied, account.Lost, account.Twice, account.Disordered,
		time.Since(began).Round(100*time.Millisecond))
	return account.Fault()
}

// breakLeaders kills one leader after the other until the time is over. Each comes back before the
// next one dies.
func (r *run) breakLeaders(ctx context.Context) error {
	end := time.Now().Add(r.config.Duration)
	for {
		if err := pause(ctx, healthy); err != nil {
			return err
		}
		if time.Now().After(end) {
			return nil
		}
		if err := r.breakLeader(ctx); err != nil {
			return err
		}
	}
}

func (r *run) breakLeader(ctx context.Context) error {
	dead, _, err := r.nodes.Leader(ctx, r.topic, r.kills)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := r.nodes.Kill(dead); err != nil {
		return err
	}
	r.kills++
	err = await(ctx, takeover, "another leader", func() bool {
		leader, _, err := r.nodes.Leader(ctx, r.topic, r.kills-1)
		return err == nil && leader != dead
	})
	if err != nil {
		return err
	}
	elected, applied := time.Since(began), r.flow.applied.Load()
	err = await(ctx, takeover, "messages to go on", func() bool { return r.flow.applied.Load() > applied })
	if err != nil {
		return err
	}
	fmt.Fprintf(r.config.Out, "%s: node %d, a leader, is dead; another one leads after %s, messages go on after %s\n",
		r.name, dead+1, elected.Round(100*time.Millisecond), time.Since(began).Round(100*time.Millisecond))
	if err := pause(ctx, away); err != nil {
		return err
	}
	if err := r.nodes.Start(ctx, dead); err != nil {
		return err
	}
	return await(ctx, rejoin, "all copies to be in sync", func() bool {
		_, whole, err := r.nodes.Leader(ctx, r.topic, r.kills)
		return err == nil && whole
	})
}

// settle waits until all that was committed has been applied, or for as long as that may take.
func (r *run) settle(ctx context.Context) (account place.Account, err error) {
	_ = await(ctx, catchUp, "the end", func() bool { // what is missing then is in the account
		account, err = r.where.Account(ctx, consumer)
		return err != nil || account.Lost == 0
	})
	return account, errors.Join(err, ctx.Err())
}

// await repeats a question until the answer is yes.
func await(ctx context.Context, limit time.Duration, what string, question func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	again := time.NewTicker(pollEvery)
	defer again.Stop()
	for !question() {
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", limit, what, ctx.Err())
		}
	}
	return nil
}

func pause(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
