// Endurance runs Postbox for long, beyond its capacity, or with brokers whose leaders die, on a
// real PostgreSQL, or on Galera. It is started by make soak, make overload and make clusters:
//
//	make soak DURATION=1h RATE=200 INTERVAL=1m
//	make idle DURATION=10m
//	make overload DURATION=1m
//	make clusters DURATION=3m
//	make sharded
//
// package soak says what must not rise, package idle what must not rise beside an outbox that
// nothing is written to, package overload what must be bounded, package trend what rising means,
// package clusters what is killed, and package sharded what is killed under a service over several
// servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/endurance/clusters"
	"github.com/postbox-go/watermill-postbox/proof/endurance/idle"
	"github.com/postbox-go/watermill-postbox/proof/endurance/overload"
	"github.com/postbox-go/watermill-postbox/proof/endurance/sharded"
	"github.com/postbox-go/watermill-postbox/proof/endurance/soak"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "endurance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say soak, idle, overload, clusters or sharded")
	}
	switch args[0] {
	case "soak":
		return runSoak(ctx, args[1:])
	case "idle":
		return runIdle(ctx, args[1:])
	case "overload":
		return runOverload(ctx, args[1:])
	case "clusters":
		return runClusters(ctx, args[1:])
	case clusters.ProcessArgument:
		return clusters.Process(ctx)
	case "sharded":
		return sharded.Run(ctx, os.Stdout)
	default:
		return fmt.Errorf("%q is none of soak, idle, overload, clusters and sharded", args[0])
	}
}

func runSoak(ctx context.Context, args []string) error {
	config := soak.Config{Out: os.Stdout}
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.DurationVar(&config.Duration, "duration", 5*time.Minute, "how long to run")
	flags.DurationVar(&config.Interval, "interval", 10*time.Second, "how often to look")
	flags.Float64Var(&config.Rate, "rate", 100, "messages a second")
	flags.StringVar(&config.Broker, "broker", soak.GoChannel, soak.GoChannel+", or "+soak.Kafka+", whose brokers "+soak.KafkaVariable+" says")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return soak.Run(ctx, config)
}

func runIdle(ctx context.Context, args []string) error {
	config := idle.Config{Out: os.Stdout}
	flags := flag.NewFlagSet("idle", flag.ContinueOnError)
	flags.DurationVar(&config.Duration, "duration", 10*time.Minute, "how long to run")
	flags.DurationVar(&config.Interval, "interval", 5*time.Second, "how often to look")
	flags.Float64Var(&config.Rate, "rate", 4, "megabytes a second that other users of the server write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return idle.Run(ctx, config)
}

func runOverload(ctx context.Context, args []string) error {
	config := overload.Config{Out: os.Stdout}
	flags := flag.NewFlagSet("overload", flag.ContinueOnError)
	flags.DurationVar(&config.Duration, "duration", time.Minute, "how long each overload lasts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return overload.Run(ctx, config)
}

func runClusters(ctx context.Context, args []string) error {
	config := clusters.Config{Out: os.Stdout}
	flags := flag.NewFlagSet("clusters", flag.ContinueOnError)
	flags.DurationVar(&config.Duration, "duration", 3*time.Minute, "how long nodes of each cluster are killed")
	flags.StringVar(&config.Only, "only", "", "kafka, rabbitmq or galera; default: one after the other")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return clusters.Run(ctx, config)
}
