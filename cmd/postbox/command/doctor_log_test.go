package command_test

import (
	"testing"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestDoctor_finds_that_the_slot_of_the_log_is_gone(t *testing.T) {
	t.Parallel()
	b := &bench{T: t, database: testdb.Postgres(t).Migrate(t)}
	b.database.Exec(t, "INSERT INTO postbox_log_position VALUES (1, 'postbox_1_2_outbox', 5, 0, 1, 0)")
	b.only("log", b.findings(), "problem: the slot postbox_1_2_outbox is gone", "pgtail.AcceptLoss")
}
