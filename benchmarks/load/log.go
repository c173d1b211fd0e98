package load

import (
	"context"
	"database/sql"
	"errors"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// SetUpLog makes the tables and the slot for messages that are in the log alone. The slot outlives the schema and the
// handles of a stage, so drop removes it.
func SetUpLog(ctx context.Context, stage *measure.Stage) (reader pgtail.OutboxConfig, drop func() error, err error) {
	reader = pgtail.OutboxConfig{DSN: stage.DSN}
	on := func(db *sql.DB) postbox.Database { return postbox.Database{DB: db, Dialect: postbox.PostgreSQL} }
	if err := postbox.Migrate(ctx, on(stage.Setup)); err != nil {
		return reader, nil, err
	}
	if err := pgtail.SetupOutbox(ctx, on(stage.Setup), reader); err != nil {
		return reader, nil, err
	}
	return reader, func() error {
		db, err := sql.Open("postgres", stage.DSN)
		if err != nil {
			return err
		}
		return errors.Join(pgtail.DiscardOutbox(context.WithoutCancel(ctx), on(db), reader), db.Close())
	}, nil
}
