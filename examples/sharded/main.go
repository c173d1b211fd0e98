// Sharded is a service over several PostgreSQL servers, each with an outbox. The accounts of a
// server are there with their orders; events of all go to one topic of Kafka, and two processes of
// the billing consume it. While orders come in, a server is added, accounts move to it, and
// processes are killed.
//
// Read shard.go first: it has orders, and the move of an account. billing.go consumes. demo.go
// tells the story, and check.go judges.
//
//	go run -C examples ./sharded -shard postgres://… -shard postgres://… -shard postgres://…
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	postbox "github.com/postbox-go/watermill-postbox"
)

// settings are where things are. The demo passes them on to the processes that it starts.
type settings struct {
	shards       list // the last one is added while orders come in
	kafka, topic string
	role         string
	faults       string // where to ask for a fault of a server
	homes        int    // servers at the beginning: they have the accounts that never moved
	phase        int
}

// list is a flag that may be there more than once.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

// Set adds a value.
func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sharded:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	var s settings
	flags := flag.NewFlagSet("sharded", flag.ContinueOnError)
	flags.Var(&s.shards, "shard", "URL of a PostgreSQL server; at least three times, and the last one is added later")
	flags.StringVar(&s.kafka, "kafka", cmp.Or(os.Getenv("KAFKA_BROKERS"), "localhost:9092"), "Kafka brokers, with commas between them")
	flags.StringVar(&s.topic, "topic", "postbox.example.sharded."+postbox.NewMessageID(), "topic of the events, one for each run")
	flags.StringVar(&s.faults, "faults", "", "URL to which /postgres and /kafka are posted, when a server shall be killed and started again")
	flags.IntVar(&s.phase, "events", 300, "events between two incidents")
	flags.IntVar(&s.homes, "homes", 0, "servers at the beginning, for a shop")
	flags.StringVar(&s.role, "role", "demo", "demo, or shop or billing, which the demo starts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch s.role {
	case "demo":
		if len(s.shards) < fewest {
			return errors.New("say -shard at least three times")
		}
		return runDemo(ctx, s, out)
	case "shop":
		return runShop(ctx, s, in)
	case "billing":
		return runBilling(ctx, s, in)
	default:
		return fmt.Errorf("%q is neither demo nor shop nor billing", s.role)
	}
}

// fewest is the smallest number of servers: two and the one that is added.
const fewest = 3

// args are those with which a process takes its role on so many servers.
func (s settings) args(role string, shards int) []string {
	args := []string{"-role", role, "-kafka", s.kafka, "-topic", s.topic, "-homes", strconv.Itoa(s.homes)}
	for _, shard := range s.shards[:shards] {
		args = append(args, "-shard", shard)
	}
	return args
}
