package deferred

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/accounts"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/queue"
)

// addedRounds are those of the comparisons that are made beside the main ones.
const addedRounds = 3

// IngestMariaDB stores deliveries on MariaDB, 64 at a time.
func IngestMariaDB() measure.Scenario {
	reach, grouped := measure.MariaDB{}, measure.MariaDB{Interpolate: true}
	return measure.Scenario{
		Name:      "ingest-mariadb",
		About:     "store deliveries on MariaDB, 64 in flight: by hand nothing looks for duplicates, unless commits are shared",
		Needs:     measure.MariaDBVariable,
		Floor:     "grouped-by-hand",
		MaxRounds: addedRounds,
		Contenders: []measure.Contender{
			{Name: "ours", Run: onMariaDBSite(reach, ingest)},
			{Name: "by-hand", Run: onMariaDBSite(reach, ingestByHand)},
			{Name: "grouped-by-hand", Run: onMariaDBSite(grouped, ingestGroupedMariaDB(1))},
			{Name: "grouped-by-hand-2", Run: onMariaDBSite(grouped, ingestGroupedMariaDB(commitsByHand))},
			// The same with the rows of Postbox, which have more columns, then with their indexes,
			// then with their lock.
			{Name: "our-rows-by-hand", Run: onMariaDBSite(grouped, ownRows{}.contender)},
			{Name: "our-indexes-by-hand", Run: onMariaDBSite(grouped, ownRows{indexes: true}.contender)},
			{Name: "our-lock-by-hand", Run: onMariaDBSite(grouped, ownRows{indexes: true, lock: true}.contender)},
		},
		Targets: []measure.Target{{
			Name: "ingest-mariadb", Ours: "ours", Other: "by-hand", OrElse: []string{"grouped-by-hand", "grouped-by-hand-2"}, AtLeast: 0.9,
		}},
	}
}

// WorkMariaDB works off what has been stored on MariaDB.
func WorkMariaDB() measure.Scenario {
	inTx := func(config queue.Config) measure.Run {
		return onMariaDBSite(measure.MariaDB{}, func(ctx context.Context, stage *measure.Stage, at site) error {
			return at.workShaped(ctx, stage, load.Usual(), some(stage), config)
		})
	}
	return measure.Scenario{
		Name:      "deferred-mariadb",
		About:     "work off stored messages on MariaDB: handlers that do nothing, and handlers with one update in a transaction",
		Needs:     measure.MariaDBVariable,
		Floor:     "by-hand-tx",
		MaxRounds: addedRounds,
		Contenders: []measure.Contender{
			{Name: "ours", Run: onMariaDBSite(measure.MariaDB{}, func(ctx context.Context, stage *measure.Stage, at site) error {
				return at.workNothing(ctx, stage, some(stage), queue.Config{Concurrency: concurrent})
			})},
			// As many at a time, and as many messages, as by hand: each connection more costs
			// either of them more.
			{Name: "ours-tx", Run: inTx(queue.Config{Concurrency: handlersByHand, Transactional: true})},
			{Name: "ours-microbatch", Run: inTx(queue.Config{Concurrency: microBatches, MicroBatch: microBatch})},
			{Name: "by-hand-tx", Run: onMariaDBSite(measure.MariaDB{}, byHand)},
		},
		Targets: []measure.Target{
			{Name: "deferred-mariadb", Ours: "ours-tx", Other: "by-hand-tx", AtLeast: 0.9},
			{Name: "deferred-mariadb", Ours: "ours-microbatch", Other: "by-hand-tx", AtLeast: 3},
		},
	}
}

// ingestGroupedMariaDB does what [ingestGrouped] does on PostgreSQL, with a statement more for each
// commit. The values are in the text of the statements.
func ingestGroupedMariaDB(commits int) contender {
	return func(ctx context.Context, stage *measure.Stage, at site) error {
		if err := accounts.Create(ctx, at.setup, at.createQueue, at.CreateProcessed); err != nil {
			return err
		}
		together := load.NewGroup(inFlight, commits, func(batch []*message.Message) error {
			tx, err := at.database.DB.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := storeNew(ctx, tx, batch); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		})
		defer together.Close()
		return load.Deliver(ctx, stage, inFlight, at.stored, func(_ context.Context, msg *message.Message) error {
			return together.Do(msg)
		})
	}
}

// storeNew claims messages, and stores those that no one has claimed before.
func storeNew(ctx context.Context, tx *sql.Tx, batch []*message.Message) error {
	fresh, err := claimTogether(ctx, tx, batch)
	if err != nil {
		return err
	}
	var values []any
	for _, msg := range batch {
		if !fresh[msg.UUID] {
			continue
		}
		metadata, err := json.Marshal(msg.Metadata)
		if err != nil {
			return err
		}
		values = append(values, msg.UUID, metadata, []byte(msg.Payload))
	}
	if len(fresh) == 0 {
		return nil
	}
	_, err = tx.ExecContext(ctx, insertMany+list(insertManyEach, len(fresh)), values...)
	return err
}

// claimTogether returns the ids of the messages that are new.
func claimTogether(ctx context.Context, tx *sql.Tx, batch []*message.Message) (fresh map[string]bool, err error) {
	var values []any
	for _, msg := range batch {
		values = append(values, queueName, msg.UUID)
	}
	rows, err := tx.QueryContext(ctx, claimMany+list(claimManyEach, len(batch))+claimManyEnd, values...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	fresh = make(map[string]bool, len(batch))
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		fresh[id] = true
	}
	return fresh, rows.Err()
}

// list repeats an element of a statement.
func list(each string, n int) string { return each + strings.Repeat(", "+each, n-1) }
