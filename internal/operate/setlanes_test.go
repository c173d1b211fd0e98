package operate_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/operate"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

var errUndone = errors.New("the test rolls back")

// A handler in a lane of an earlier layout takes long, in a transaction that has locked the row of the lane. Neither the transaction that changes the layout nor
// the renewal of other leases waits for it.
func TestSetLanes_G6_a_long_handler_in_an_old_lane_holds_up_no_other(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		ctx, cancel := context.WithTimeout(t.Context(), enginetest.Patience)
		defer cancel()
		operator := operate.NewOperator(database.DB, b.Statements, operate.NewAuditor(b.Statements, ""), watermill.NopLogger{}).Settling(0)
		setLanes := func(n int) {
			_, err := operator.SetLanes(ctx, b.Spool.Name(), n, func(operate.Progress) {})
			require.NoError(t, err)
		}
		inTx := func(query dialect.Query) (changed int64) {
			require.NoError(t, spool.InTx(ctx, database.DB, b.Statements, func(tx *sql.Tx) (err error) {
				changed, err = spool.Affected(spool.Directly(ctx, tx, query))
				return err
			}))
			return changed
		}
		id, err := b.Spool.Open(ctx, database.DB)
		require.NoError(t, err)
		const token, hour, others = 7, int64(3_600_000_000), 3
		inTx(b.Statements.FillLanes(id, b.Spool.Layout()))
		hold := func(holder, which string) {
			expires := int64(database.Count(t, b.Statements.Clock)) + hour
			database.Exec(t, "UPDATE postbox_lanes SET holder = ?, token = ?, expires_at = ? WHERE "+which, holder, token, expires)
		}
		hold("long", "lane = 3")
		setLanes(others)
		hold("other", "holder IS NULL")

		handler, err := database.DB.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer func() { _ = handler.Rollback() }()
		held := b.Statements.HoldLane(dialect.HeldLane{Spool: id, Lane: 3, Token: token})
		var one int
		require.NoError(t, handler.QueryRowContext(ctx, held.Text, held.Args...).Scan(&one))

		present := dialect.Layout{First: spool.MaxLanes, Lanes: others}
		require.ErrorIs(t, spool.InTx(ctx, database.DB, b.Statements, func(tx *sql.Tx) error {
			retired, err := spool.SelectIDs(ctx, tx, b.Statements.RetiredLanes(id, present))
			require.NoError(t, err)
			require.Len(t, retired, enginetest.Lanes-1)
			require.NoError(t, spool.Run(ctx, tx, b.Statements.DropRetired(id, slices.Collect(maps.Keys(retired)))))
			require.EqualValues(t, others, inTx(b.Statements.Renew(dialect.Member{Spool: id, Holder: "other"}, 2*hour)), "it need not wait for the transaction")
			return errUndone
		}), errUndone)
		setLanes(others + 1)
		require.NoError(t, handler.Rollback())
		require.Equal(t, 1+others+others+1, database.Count(t, "SELECT COUNT(*) FROM postbox_lanes"), "the rows of all retired lanes are gone")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE lane = 3 AND holder = 'long'"))
	})
}
