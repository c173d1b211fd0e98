package main

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
)

// Topics of the users service, and what their events say.
const (
	userCreated   = "users.created"
	userSuspected = "users.suspected"
)

type user struct {
	ID string `json:"id"`
}

const (
	honest  = "HONEST"
	suspect = "SUSPECT"
)

// users is the service that knows who is honest. It also wants to know how many orders of a suspect
// were reviewed.
type users struct{ *service }

func newUsers(p *pipes.Pipes, bus *noisyBus) (*users, error) {
	s, err := newService(p, "users", bus)
	if err != nil {
		return nil, err
	}
	u := &users{s}
	return u, u.on(orderChanged, "", u.hearOfReview)
}

func (u *users) create(ctx context.Context, id string) error {
	return postbox.InTx(ctx, u.db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO fraud_users (id, status) VALUES ($1, $2)", id, honest); err != nil {
			return err
		}
		return u.publish(ctx, userCreated, id, user{ID: id})
	})
}

// suspect commits the new status and the event that tells of it, or neither.
func (u *users) suspect(ctx context.Context, id string) error {
	return postbox.InTx(ctx, u.db, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE fraud_users SET status = $1 WHERE id = $2", suspect, id); err != nil {
			return err
		}
		return u.publish(ctx, userSuspected, id, user{ID: id})
	})
}

func (u *users) hearOfReview(msg *message.Message) ([]*message.Message, error) {
	tx, changed, err := received[order](msg)
	if err != nil || changed.Status == placed {
		return nil, err
	}
	_, err = tx.ExecContext(msg.Context(), "UPDATE fraud_users SET reviews = reviews + 1 WHERE id = $1", changed.UserID)
	return nil, err
}
