package relay

import (
	"context"
	"database/sql"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// steadily is how the messages of [Steady] and [LongTx] come: far fewer than a forwarder can
// publish.
var steadily = pace{perSecond: 800, clients: 16}

// The seconds that messages come, the seconds for what is done by hand, and those of a quick run.
const (
	steadySeconds = 90
	byHandSeconds = 20
	quickSeconds  = 3
)

// keepsPace is the part of the pace that must be reached, since a machine that commits fewer
// messages publishes them sooner.
const keepsPace = 0.95

// Steady commits messages for long into an outbox that was empty, and takes the time until each is
// published. No statistics of the table are there at first, and rows that were deleted pile up
// until autovacuum comes.
func Steady() measure.Scenario {
	return measure.Scenario{
		Name:      "steady",
		About:     "800 messages a second for 90 s into an outbox that was empty: from the commit to the call of the publisher; by hand for 20 s",
		MaxRounds: 1,
		Picture:   P99,
		Floor:     "by-hand",
		Contenders: []measure.Contender{
			{Name: "ours", Run: oursSteady(steadySeconds)},
			{Name: "by-hand", Run: func(ctx context.Context, stage *measure.Stage) error {
				return pacedByHand(ctx, stage, stage.DB, byHandPostgres, steadyFor(stage, byHandSeconds))
			}},
		},
		Targets: steadyTargets("steady", 5),
	}
}

// SteadyMariaDB does so on MariaDB.
func SteadyMariaDB() measure.Scenario {
	return measure.Scenario{
		Name:      "steady-mariadb",
		About:     "the same on MariaDB",
		Needs:     measure.MariaDBVariable,
		MaxRounds: 1,
		Picture:   P99,
		Floor:     "by-hand",
		Contenders: []measure.Contender{
			{Name: "ours", Run: measure.MariaDB{}.Run(func(ctx context.Context, stage *measure.Stage, db *sql.DB) error {
				return oursPaced(ctx, stage, db, postbox.MySQL, steadyFor(stage, steadySeconds))
			})},
			{Name: "by-hand", Run: measure.MariaDB{}.Run(func(ctx context.Context, stage *measure.Stage, db *sql.DB) error {
				return pacedByHand(ctx, stage, db, byHandMariaDB, steadyFor(stage, byHandSeconds))
			})},
		},
		Targets: steadyTargets("steady", 5),
	}
}

// steadyFor lets them come for so many seconds. The first ones are timed, too.
func steadyFor(stage *measure.Stage, seconds int) paced {
	return paced{seconds: stage.Scale(seconds, quickSeconds), pace: steadily}
}

// oursSteady lets messages come for so many seconds.
func oursSteady(seconds int) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		return oursPaced(ctx, stage, stage.DB, postbox.PostgreSQL, steadyFor(stage, seconds))
	}
}

// steadyTargets are those of ours: it is within so many milliseconds, and the messages came at
// their pace.
func steadyTargets(name string, milliseconds float64) []measure.Target {
	return []measure.Target{
		{Name: name, Ours: "ours", Limit: milliseconds, Metric: P99, Lower: true, AtLeast: 1},
		{Name: name, Ours: "ours", Limit: float64(steadily.perSecond), AtLeast: keepsPace},
	}
}
