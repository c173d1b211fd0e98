// Package place gives a run a schema of its own on PostgreSQL, with the tables of Postbox and of a
// small business, and knows what the run asks them: how large things are, and whether every effect
// came once and in order.
package place

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"time"

	_ "github.com/lib/pq" // driver "postgres"

	postbox "github.com/postbox-go/watermill-postbox"
)

const (
	// Variable is where scripts/services says where PostgreSQL is.
	Variable = "TEST_POSTGRES_DSN"
	// LogVariable is where it says where the PostgreSQL is whose log can be read.
	LogVariable = "TEST_POSTGRES_LOG_DSN"
)

// Place is a schema, and the handle by which the run works in it.
type Place struct {
	DB *sql.DB
	// DSN reaches the schema.
	DSN string

	name string
	// watch is the handle of whoever looks on. It is no part of what is looked at.
	watch *sql.DB
}

// idleTime lets the pool shrink after a moment in which many were needed, so that a leak can be
// told from that.
const idleTime = 5 * time.Second

// Open makes a schema, which the run works in with so many connections.
func Open(ctx context.Context, connections int) (*Place, error) {
	return OpenAt(ctx, Variable, connections)
}

// OpenAt is [Open] on the server that a variable names.
func OpenAt(ctx context.Context, variable string, connections int) (*Place, error) {
	dsn := os.Getenv(variable)
	if dsn == "" {
		return nil, fmt.Errorf("%s is not set: run through scripts/services, as make soak and make overload do", variable)
	}
	p := &Place{name: "endurance_" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	var err error
	if p.watch, err = sql.Open("postgres", dsn); err != nil {
		return nil, err
	}
	p.watch.SetMaxOpenConns(1)
	if err := p.create(ctx, dsn, connections); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Place) create(ctx context.Context, dsn string, connections int) error {
	if _, err := p.watch.ExecContext(ctx, "CREATE SCHEMA "+p.name); err != nil {
		return fmt.Errorf("create schema: %w", err)
	}
	if _, err := p.watch.ExecContext(ctx, "SET search_path TO "+p.name); err != nil {
		return err
	}
	address, err := url.Parse(dsn)
	if err != nil {
		return fmt.Errorf("the address of the server: %w", err)
	}
	query := address.Query()
	query.Set("search_path", p.name)
	query.Set("application_name", p.name) // by which its connections are counted
	address.RawQuery = query.Encode()
	p.DSN = address.String()
	if p.DB, err = sql.Open("postgres", p.DSN); err != nil {
		return err
	}
	p.DB.SetMaxOpenConns(connections)
	p.DB.SetMaxIdleConns(connections)
	p.DB.SetConnMaxIdleTime(idleTime)
	if err := postbox.Migrate(ctx, postbox.Database{DB: p.DB, Dialect: postbox.PostgreSQL}); err != nil {
		return err
	}
	_, err = p.DB.ExecContext(ctx, business)
	return err
}

// Close removes the schema.
func (p *Place) Close() error {
	var err error
	if p.DB != nil {
		err = p.DB.Close()
	}
	_, dropped := p.watch.ExecContext(context.Background(), "DROP SCHEMA IF EXISTS "+p.name+" CASCADE")
	return errors.Join(err, dropped, p.watch.Close())
}
