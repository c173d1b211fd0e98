package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/router"
)

// billingTables are on the first server. Nothing in them keeps an effect from being there twice.
const billingTables = `
	CREATE TABLE IF NOT EXISTS sharded_billed (
		account text PRIMARY KEY,
		version bigint NOT NULL, -- of the last event that was handled
		cents   bigint NOT NULL
	);
	CREATE TABLE IF NOT EXISTS sharded_effects (
		account text NOT NULL,
		version bigint NOT NULL,
		cents   bigint NOT NULL
	);
	CREATE TABLE IF NOT EXISTS sharded_violations (
		account text NOT NULL,
		version bigint NOT NULL
	);`

// runBilling is the whole life of a process of the billing. All of them are one consumer group.
func runBilling(ctx context.Context, s settings, in io.Reader) (err error) {
	logger := newLogger()
	first, err := openShard(s.shards[0], s.topic, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.close()) }()
	store, err := inboxstore.New(first.database, inboxstore.Config{}, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	r, err := router.New(nil, router.Config{Store: store}, logger)
	if err != nil {
		return err
	}
	subscriber, err := s.subscribe("sharded-billing", logger)
	if err != nil {
		return err
	}
	_, err = r.AddInboxHandler("billing", s.topic, subscriber, "", bill, middleware.InboxConfig{})
	if err != nil {
		return err
	}
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return r.Run(context.WithoutCancel(ctx)) })
	running.Go(func() error {
		obey(ctx, in, func() {})
		return r.Close()
	})
	return running.Wait()
}

// bill handles an event. It notes each that does not follow the one before it.
func bill(msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return nil, postbox.ErrNoTransaction
	}
	var e event
	if err := json.Unmarshal(msg.Payload, &e); err != nil {
		return nil, postbox.Permanent(err)
	}
	billed := e.Cents
	if e.MovedTo != nil {
		billed = 0
	}
	result, err := tx.ExecContext(ctx, `UPDATE sharded_billed SET version = version + 1, cents = cents + $3
		WHERE account = $1 AND version = $2 - 1`, e.Account, e.Version, billed)
	if err != nil {
		return nil, err
	}
	if rows, err := result.RowsAffected(); err != nil {
		return nil, err
	} else if rows == 0 {
		_, err := tx.ExecContext(ctx, `INSERT INTO sharded_violations (account, version) VALUES ($1, $2)`, e.Account, e.Version)
		if err != nil {
			return nil, err
		}
	}
	if e.MovedTo != nil {
		return nil, nil
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO sharded_effects (account, version, cents) VALUES ($1, $2, $3)`,
		e.Account, e.Version, e.Cents)
	return nil, err
}
