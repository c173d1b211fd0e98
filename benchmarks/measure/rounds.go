package measure

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Options say how thoroughly to measure.
type Options struct {
	// Server is the address of the server's own database.
	Server string
	// Rounds in which each contender has one turn.
	Rounds int
	// Quick asks contenders for fewer messages.
	Quick bool
	// CPUProfiles and MemoryProfiles are folders for profiles of each run; "" writes none.
	CPUProfiles, MemoryProfiles string
	// Progress is told of each run.
	Progress func(scenario, contender string, sample Sample)
}

// database is where contenders work, apart from the one by which they are watched.
const database = "bench"

// Prepare makes the contenders' database.
func Prepare(ctx context.Context, server string) error {
	db, err := sql.Open("postgres", server)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `CREATE DATABASE `+database)
	return errors.Join(err, db.Close())
}

// Rounds lets the contenders take turns: A B C A B C …
func (s Scenario) Rounds(ctx context.Context, options Options) ([]Series, error) {
	results := make([]Series, len(s.Contenders))
	for i, contender := range s.Contenders {
		results[i].Contender = contender.Name
	}
	for round := range options.Rounds {
		for i, contender := range s.Contenders {
			sample, err := s.turn(ctx, contender, round, options)
			if err != nil {
				return nil, fmt.Errorf("%s, %s, round %d: %w", s.Name, contender.Name, round+1, err)
			}
			results[i].Samples = append(results[i].Samples, sample)
			options.Progress(s.Name, contender.Name, sample)
		}
	}
	return results, nil
}

// turn is one run of one contender, in a schema of its own.
func (s Scenario) turn(ctx context.Context, contender Contender, round int, options Options) (sample Sample, err error) {
	stage := &Stage{Wire: &Wire{}, Quick: options.Quick}
	stage.schema = strings.ReplaceAll(fmt.Sprintf("%s_%s_%d", s.Name, contender.Name, round+1), "-", "_")
	if options.CPUProfiles+options.MemoryProfiles != "" {
		stage.profile = &profile{cpuFolder: options.CPUProfiles, memoryFolder: options.MemoryProfiles, name: stage.schema}
	}
	if err := stage.open(ctx, options.Server); err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, stage.clear(context.WithoutCancel(ctx))) }()
	if err := contender.Run(ctx, stage); err != nil {
		return sample, err
	}
	if err := stage.finish(ctx); err != nil {
		return sample, err
	}
	stage.sample.Round = round + 1
	return stage.sample, nil
}

// open makes the schema and the handles.
func (s *Stage) open(ctx context.Context, server string) error {
	var err error
	if s.admin, err = sql.Open("postgres", server); err != nil {
		return err
	}
	s.admin.SetMaxOpenConns(1)
	if s.DSN, err = address(server, s.schema, ""); err != nil {
		return err
	}
	setup, err := address(server, s.schema, setupName)
	if err != nil {
		return err
	}
	if s.Setup, err = sql.Open("postgres", setup); err != nil {
		return err
	}
	connector, err := s.Wire.Connector(s.DSN)
	if err != nil {
		return err
	}
	s.DB = sql.OpenDB(connector)
	const clients = 128 // more than any contender has at a time: a pool that closes connections would be measured too
	s.DB.SetMaxOpenConns(clients)
	s.DB.SetMaxIdleConns(clients)
	_, err = s.Setup.ExecContext(ctx, `CREATE SCHEMA "`+s.schema+`"`)
	return err
}

// clear throws the schema away.
func (s *Stage) clear(ctx context.Context) error {
	errs := []error{s.DB.Close(), s.Setup.Close()}
	everywhere, err := address(s.DSN, "", "")
	if err != nil {
		return err
	}
	db, err := sql.Open("postgres", everywhere)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `DROP SCHEMA "`+s.schema+`" CASCADE`)
	errs = append(errs, err, db.Close(), s.admin.Close())
	return errors.Join(errs...)
}
