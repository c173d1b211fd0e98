package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/benchmarks/server"
)

// servers are those that the benchmark has started, each when it was first needed. A server whose
// log can be read is one of its own, since it writes more log than the others are measured with.
type servers struct {
	options     measure.Options
	usual, logs *server.Postgres
}

// serverFor returns the options with the server on which a scenario runs.
func (s *servers) serverFor(ctx context.Context, scenario measure.Scenario) (measure.Options, error) {
	options := s.options
	postgres, more := &s.usual, []string(nil)
	if scenario.Log {
		postgres, more = &s.logs, server.LogSettings()
	}
	if *postgres == nil {
		started, err := s.start(ctx, more)
		if err != nil {
			return options, err
		}
		*postgres = started
	}
	options.Server, options.ServerCPU = (*postgres).DSN(), (*postgres).CPU
	return options, nil
}

// start starts a server and makes it ready.
func (s *servers) start(ctx context.Context, more []string) (*server.Postgres, error) {
	postgres, err := server.Start(ctx, more...)
	if err != nil {
		return nil, err
	}
	if !s.options.Quick { // which is over before it would matter
		fmt.Fprintln(os.Stderr, "warm up the server: it writes 2 GB")
		err = postgres.Warm(ctx)
	}
	if err == nil {
		err = measure.Prepare(ctx, postgres.DSN())
	}
	if err != nil {
		return nil, errors.Join(err, postgres.Stop())
	}
	return postgres, nil
}

// stop ends all servers.
func (s *servers) stop() (err error) {
	for _, postgres := range []*server.Postgres{s.usual, s.logs} {
		if postgres != nil {
			err = errors.Join(err, postgres.Stop())
		}
	}
	return err
}
