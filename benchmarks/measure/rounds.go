package measure

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Options say how thoroughly to measure.
type Options struct {
	// Server is the address of the server's own database.
	Server string
	// ServerCPU returns the processor time that the server has taken.
	ServerCPU func() time.Duration
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

// Rounds lets the contenders take turns: A B C, C B A, and so on, so that none always comes after
// the same one.
func (s Scenario) Rounds(ctx context.Context, options Options) (results []Series, err error) {
	if s.MaxRounds > 0 {
		options.Rounds = min(options.Rounds, s.MaxRounds)
	}
	options.Rounds *= max(1, s.Turns)
	if err := checkpoint(ctx, options.Server); err != nil {
		return nil, err
	}
	if s.Shared != nil {
		stage := s.stage("shared", options)
		if err := stage.open(ctx, options.Server, true); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stage.close(context.WithoutCancel(ctx), true)) }()
		if err := s.Shared(ctx, stage); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		if err := stage.Setup.Close(); err != nil {
			return nil, err
		}
	}
	results = make([]Series, len(s.Contenders))
	for i, contender := range s.Contenders {
		results[i].Contender = contender.Name
	}
	for round := range options.Rounds {
		for i := range s.Contenders {
			if round%2 == 1 {
				i = len(s.Contenders) - 1 - i
			}
			contender := s.Contenders[i]
			sample, err := s.turn(ctx, contender, round+1, options)
			if err != nil {
				return nil, fmt.Errorf("%s, %s, round %d: %w", s.Name, contender.Name, round+1, err)
			}
			results[i].Samples = append(results[i].Samples, sample)
			options.Progress(s.Name, contender.Name, sample)
		}
	}
	return results, nil
}

// checkpoint makes a checkpoint now. It frees the server's WAL files, and the next checkpoint comes
// late.
func checkpoint(ctx context.Context, server string) error {
	db, err := sql.Open("postgres", server)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `CHECKPOINT`)
	return errors.Join(err, db.Close())
}

// turn is one run of one contender.
func (s Scenario) turn(ctx context.Context, contender Contender, round int, options Options) (sample Sample, err error) {
	name := fmt.Sprintf("%s_%d", contender.Name, round)
	stage := s.stage(name, options)
	if options.CPUProfiles+options.MemoryProfiles != "" {
		stage.profile = &profile{cpuFolder: options.CPUProfiles, memoryFolder: options.MemoryProfiles, name: stage.schema}
	}
	own := !contender.InShared
	if !own {
		stage.schema = s.schema("shared")
	}
	if err := stage.open(ctx, options.Server, own); err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, stage.close(context.WithoutCancel(ctx), own)) }()
	if err := contender.Run(ctx, stage); err != nil {
		return sample, err
	}
	if err := stage.finish(ctx); err != nil {
		return sample, err
	}
	stage.sample.Round = round
	return stage.sample, nil
}

func (s Scenario) stage(name string, options Options) *Stage {
	return &Stage{Wire: &Wire{}, Quick: options.Quick, schema: s.schema(name), serverCPU: options.ServerCPU}
}

// schema is the name of one of the scenario's schemas.
func (s Scenario) schema(name string) string { return strings.ReplaceAll(s.Name+"_"+name, "-", "_") }

// open makes the handles, and the schema unless it is there.
func (s *Stage) open(ctx context.Context, server string, create bool) error {
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
	if !create {
		return nil
	}
	_, err = s.Setup.ExecContext(ctx, `CREATE SCHEMA "`+s.schema+`"`)
	return err
}

// close closes the handles, and throws the schema away if it is the stage's own.
func (s *Stage) close(ctx context.Context, drop bool) error {
	errs := []error{s.DB.Close(), s.Setup.Close(), s.admin.Close()}
	if drop {
		errs = append(errs, s.drop(ctx))
	}
	return errors.Join(errs...)
}

func (s *Stage) drop(ctx context.Context) error {
	db, err := sql.Open("postgres", s.DSN)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `DROP SCHEMA "`+s.schema+`" CASCADE`)
	return errors.Join(err, db.Close())
}
