package relay

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// mariaDBRounds are enough, since there the contenders lie far apart.
const mariaDBRounds = 3

// ThroughputMariaDB drains a backlog on MariaDB into a publisher that does nothing.
func ThroughputMariaDB() measure.Scenario {
	return measure.Scenario{
		Name:      "relay-mariadb",
		About:     "drain 30,000 messages on MariaDB into a publisher that does nothing; Watermill's forwarder 5,000 of them",
		Needs:     measure.MariaDBVariable,
		Floor:     "by-hand",
		MaxRounds: mariaDBRounds,
		Contenders: []measure.Contender{
			{Name: "ours", Run: oursMariaDB(forwarder.Config{})},
			{Name: "ours-tuned", Run: oursMariaDB(tuned)},
			{Name: "watermill", Run: stockMariaDB(0)},
			{Name: "watermill-5000", Run: stockMariaDB(stockPage)},
			{Name: "by-hand", Run: floorMariaDB()},
		},
		Targets: []measure.Target{
			{Name: "relay-mariadb", Ours: "ours", Other: "watermill", AtLeast: 8},
			{Name: "relay-mariadb", Ours: "ours-tuned", Other: "watermill-5000", AtLeast: 3},
			{Name: "relay-mariadb-floor", Ours: "ours-tuned", Other: "by-hand", AtLeast: 0.6},
		},
	}
}

// The messages of a drain on MariaDB, those of Watermill's forwarder, which sends one at a time,
// and those of a quick run.
const (
	mariaDBBacklog      = 30_000
	quickMariaDBBacklog = 15_000
	stockMariaDBBacklog = 5_000
	quickStockBacklog   = 2_000
)

func oursMariaDB(config forwarder.Config) measure.Run {
	return measure.MariaDB{}.Run(func(ctx context.Context, stage *measure.Stage, db *sql.DB) error {
		n := stage.Scale(mariaDBBacklog, quickMariaDBBacklog)
		database := postbox.Database{DB: db, Dialect: postbox.MySQL}
		if err := fillOn(ctx, database, load.Usual(), n); err != nil {
			return err
		}
		return drainOn(ctx, stage, database, newSink(n, 0), config)
	})
}

func stockMariaDB(batchSize int) measure.Run {
	return measure.MariaDB{}.Run(func(ctx context.Context, stage *measure.Stage, db *sql.DB) error {
		n := stage.Scale(stockMariaDBBacklog, quickStockBacklog)
		tables := stockTables{wmsql.DefaultMySQLSchema{SubscribeBatchSize: batchSize}, wmsql.DefaultMySQLOffsetsAdapter{}}
		if err := fillStock(db, tables.schema, n); err != nil {
			return err
		}
		return drainStock(ctx, stage, db, tables, n, newSink(n, 0))
	})
}

// floorMariaDB does what [floor] does on PostgreSQL. The ids of what it deletes are in the text of
// the statement.
func floorMariaDB() measure.Run {
	return measure.MariaDB{}.Run(func(ctx context.Context, stage *measure.Stage, db *sql.DB) error {
		n := stage.Scale(mariaDBBacklog, quickMariaDBBacklog)
		if err := fillFloorMariaDB(ctx, db, n); err != nil {
			return err
		}
		if err := stage.Start(ctx); err != nil {
			return err
		}
		err := drainByHand(ctx, db, mariaDBRead, newSink(n, 0), peerPage, func(ids []int64) error {
			return byHandMariaDB.remove(ctx, db, ids)
		})
		return errors.Join(err, stage.Stop(n))
	})
}

func fillFloorMariaDB(ctx context.Context, db *sql.DB, n int) error {
	if _, err := db.ExecContext(ctx, mariaDBTable); err != nil {
		return err
	}
	return load.Fill(n, func(batch ...*message.Message) error {
		var values []any
		for _, msg := range batch {
			metadata, err := json.Marshal(msg.Metadata)
			if err != nil {
				return err
			}
			values = append(values, load.Topic, msg.UUID, metadata, []byte(msg.Payload))
		}
		_, err := db.ExecContext(ctx, mariaDBInsert+strings.Repeat("(?, ?, ?, ?), ", len(batch)-1)+"(?, ?, ?, ?)", values...)
		return err
	})
}
