// Command kfake serves an in-memory stand-in for Kafka on a loopback port, for machines where
// Kafka's jars cannot be had. It is a module of its own, so that users of Postbox do not get its
// client library.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port := flag.Int("port", 0, "loopback port to serve on; 0 means any")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(*port), kfake.AllowAutoTopicCreation())
	if err != nil {
		fmt.Fprintln(os.Stderr, "kfake cannot start:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and the signals with it
	}
	fmt.Println("kfake serves", cluster.ListenAddrs())
	<-ctx.Done()
	cluster.Close()
}
