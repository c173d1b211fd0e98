package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// tables of the example, for SQLite and PostgreSQL. Nothing in them keeps a command from being paid
// twice, or a receipt from being filed twice: if the inbox failed, it would show.
const tables = `
	CREATE TABLE IF NOT EXISTS payments_accounts (
		name      TEXT NOT NULL PRIMARY KEY,
		cents     BIGINT NOT NULL,
		deposited BIGINT NOT NULL
	);
	CREATE TABLE IF NOT EXISTS payments_commands (
		id      TEXT NOT NULL PRIMARY KEY,
		account TEXT NOT NULL,
		cents   BIGINT NOT NULL
	);
	CREATE TABLE IF NOT EXISTS payments_payments (
		command_id TEXT NOT NULL,
		account    TEXT NOT NULL,
		cents      BIGINT NOT NULL
	);
	CREATE TABLE IF NOT EXISTS payments_filed (
		command_id TEXT NOT NULL,
		cents      BIGINT NOT NULL
	);`

const (
	accounts = 10
	// poor is the account without money for its payments.
	poor  = "account 0"
	cents = 250 // of each payment
)

func account(n int) string { return fmt.Sprintf("account %d", n%accounts) }

// deposit puts money on an account, which it opens where it is not there.
func (b *bank) deposit(ctx context.Context, name string, cents int64) error {
	_, err := b.DB.ExecContext(ctx, `
		INSERT INTO payments_accounts AS a (name, cents, deposited) VALUES ($1, $2, $2)
		ON CONFLICT (name) DO UPDATE SET cents = a.cents + excluded.cents, deposited = a.deposited + excluded.deposited`,
		name, cents)
	return err
}

// openAccounts deposits what the commands will need, except on the poor account.
func (b *bank) openAccounts(ctx context.Context, commands int) error {
	for n := range accounts {
		amount := int64(commands) * cents
		if account(n) == poor {
			amount = 0
		}
		if err := b.deposit(ctx, account(n), amount); err != nil {
			return fmt.Errorf("deposit: %w", err)
		}
	}
	return nil
}

// placeCommands is what a shop would do: it notes what is to be paid and commands it, in one
// transaction.
func (b *bank) placeCommands(ctx context.Context, number int) error {
	for n := range number {
		order := payment{ID: postbox.NewMessageID(), Account: account(n), Cents: cents}
		err := postbox.InTx(ctx, b.DB, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO payments_commands (id, account, cents) VALUES ($1, $2, $3)",
				order.ID, order.Account, order.Cents)
			if err != nil {
				return err
			}
			payload, err := json.Marshal(order)
			if err != nil {
				return err
			}
			return b.publisher.Publish(commandsTopic, message.NewMessageWithContext(ctx, order.ID, payload)) // the transaction is in ctx
		})
		if err != nil {
			return fmt.Errorf("place a command: %w", err)
		}
	}
	return nil
}
