package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	_ "github.com/lib/pq" // driver "postgres"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// shardTables are on each server. An account that has moved leaves its row, which says where to.
const shardTables = `
	CREATE TABLE IF NOT EXISTS sharded_accounts (
		account  text PRIMARY KEY,
		version  bigint NOT NULL, -- of its last event
		cents    bigint NOT NULL,
		moved_to integer          -- NULL: it is here
	);
	CREATE TABLE IF NOT EXISTS sharded_orders (
		account text NOT NULL,
		version bigint NOT NULL,
		cents   bigint NOT NULL
	);`

const (
	prefix      = "sharded_postbox_"
	lanes       = 32
	connections = 20
)

// event is what became of an account.
type event struct {
	Account string `json:"account"`
	Version int64  `json:"version"` // one more than that of the event before
	Cents   int64  `json:"cents"`   // of an order, or of the account that moves
	MovedTo *int   `json:"moved_to,omitempty"`
}

// movedTo is the metadata of an event that moves an account: the number of the server.
const movedTo = "moved_to"

// shard is one server, with its outbox.
type shard struct {
	database postbox.Database
	url      string
	topic    string
	outbox   *forwarder.Publisher
}

func openShard(url, topic string, logger watermill.LoggerAdapter) (*shard, error) {
	db, err := sql.Open("postgres", url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	s := &shard{database: postbox.Database{DB: db, Dialect: postbox.PostgreSQL, Prefix: prefix}, url: url, topic: topic}
	s.outbox, err = forwarder.NewPublisher(s.database, forwarder.PublisherConfig{}, logger)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// migrate makes the tables.
func (s *shard) migrate(ctx context.Context) error {
	if err := postbox.Migrate(ctx, s.database); err != nil {
		return err
	}
	_, err := s.database.DB.ExecContext(ctx, shardTables)
	return err
}

func (s *shard) close() error { return errors.Join(s.outbox.Close(), s.database.DB.Close()) }

// elsewhere says that an account is on another server.
type elsewhere int

func (e elsewhere) Error() string { return "the account is on server " + strconv.Itoa(int(e)) }

var errUnknownAccount = errors.New("the account is not on this server")

// order stores an order and its event in one commit. The row of the account is locked meanwhile, so
// the versions have no gaps, and no order comes after a move.
func (s *shard) order(ctx context.Context, account string, cents int64) error {
	return postbox.InTx(ctx, s.database.DB, func(ctx context.Context, tx *sql.Tx) error {
		e := event{Account: account, Cents: cents}
		err := tx.QueryRowContext(ctx, `UPDATE sharded_accounts SET version = version + 1, cents = cents + $2
			WHERE account = $1 AND moved_to IS NULL RETURNING version`, account, cents).Scan(&e.Version)
		if errors.Is(err, sql.ErrNoRows) {
			return s.whereIs(ctx, tx, account)
		}
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO sharded_orders (account, version, cents) VALUES ($1, $2, $3)`,
			account, e.Version, cents)
		if err != nil {
			return err
		}
		return s.publish(ctx, e)
	})
}

// whereIs returns an error that says it.
func (s *shard) whereIs(ctx context.Context, tx *sql.Tx, account string) error {
	var to sql.NullInt64
	err := tx.QueryRowContext(ctx, `SELECT moved_to FROM sharded_accounts WHERE account = $1`, account).Scan(&to)
	if errors.Is(err, sql.ErrNoRows) {
		return errUnknownAccount
	}
	if err != nil {
		return err
	}
	if !to.Valid { // it has come back in between
		return errUnknownAccount
	}
	return elsewhere(to.Int64)
}

// move lets an account go to another server. No order can follow on this one. The event carries the
// account: it is the last one of the account in this outbox, so where it arrives, all events before
// it are on the broker, and those that the other server publishes come after them.
func (s *shard) move(ctx context.Context, account string, to int) error {
	return postbox.InTx(ctx, s.database.DB, func(ctx context.Context, tx *sql.Tx) error {
		e := event{Account: account, MovedTo: &to}
		err := tx.QueryRowContext(ctx, `UPDATE sharded_accounts SET version = version + 1, moved_to = $2
			WHERE account = $1 AND moved_to IS NULL RETURNING version, cents`, account, to).Scan(&e.Version, &e.Cents)
		if errors.Is(err, sql.ErrNoRows) {
			return s.whereIs(ctx, tx, account)
		}
		if err != nil {
			return err
		}
		return s.publish(ctx, e)
	})
}

// has returns nil if the account is on this server.
func (s *shard) has(ctx context.Context, account string) error {
	return postbox.InTx(ctx, s.database.DB, func(ctx context.Context, tx *sql.Tx) error {
		var here int
		err := tx.QueryRowContext(ctx, `SELECT 1 FROM sharded_accounts WHERE account = $1 AND moved_to IS NULL`, account).Scan(&here)
		if errors.Is(err, sql.ErrNoRows) {
			return s.whereIs(ctx, tx, account)
		}
		return err
	})
}

func (s *shard) publish(ctx context.Context, e event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	msg := message.NewMessageWithContext(ctx, postbox.NewMessageID(), body)
	msg.Metadata.Set(postbox.MetadataOrderingKey, e.Account)
	if e.MovedTo != nil {
		msg.Metadata.Set(movedTo, strconv.Itoa(*e.MovedTo))
	}
	return s.outbox.Publish(s.topic, msg)
}

// arrive handles the event of an account that moves, on the server where it goes.
func arrive(msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return nil, postbox.ErrNoTransaction
	}
	var e event
	if err := json.Unmarshal(msg.Payload, &e); err != nil {
		return nil, postbox.Permanent(err)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO sharded_accounts (account, version, cents) VALUES ($1, $2, $3)
		ON CONFLICT (account) DO UPDATE SET version = excluded.version, cents = excluded.cents, moved_to = NULL
		WHERE sharded_accounts.version < excluded.version`, // an old move that comes again changes nothing
		e.Account, e.Version, e.Cents)
	return nil, err
}

// shards are the servers that a process knows, in an order that never changes. One is added at the
// end.
type shards []*shard

func openShards(ctx context.Context, s settings, logger watermill.LoggerAdapter) (all shards, err error) {
	for _, url := range s.shards {
		one, err := openShard(url, s.topic, logger)
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, one)
	}
	return all, ctx.Err()
}

func (all shards) close() (err error) {
	for _, s := range all {
		err = errors.Join(err, s.close())
	}
	return err
}

// home is where an account is that never moved. It does not depend on servers that were added, or
// all accounts would have to move at once.
func home(account string, homes int) int { return postbox.Lane(account, homes*lanes) / lanes }

// hop is the pause before the next server is asked where an account is. While that is on its way,
// none has it.
const hop = 5 * time.Millisecond

// follow calls do with the server that has the account.
func (all shards) follow(ctx context.Context, account string, homes int, do func(*shard) error) error {
	for at := home(account, homes); ; {
		err := do(all[at])
		next := at
		var to elsewhere
		switch {
		case errors.As(err, &to) && int(to) < len(all):
			next = int(to)
		case errors.As(err, &to):
			return fmt.Errorf("account %s: %w, of which this process does not know yet", account, err)
		case errors.Is(err, errUnknownAccount): // it is on its way
		default:
			return err
		}
		at = next
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(hop):
		}
	}
}

// move lets an account go to another server. After an error, call it again: it finds out whether
// the account has gone.
func (all shards) move(ctx context.Context, account string, homes, to int) error {
	return all.follow(ctx, account, homes, func(at *shard) error {
		if at != all[to] {
			return at.move(ctx, account, to)
		}
		err := at.has(ctx, account)
		if errors.Is(err, errUnknownAccount) {
			return nil // it is on its way
		}
		return err
	})
}
