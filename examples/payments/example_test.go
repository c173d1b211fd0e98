package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// Also covers feature 2.1.
func TestRun_G4_pays_each_command_once_on_SQLite_and_GoChannel(t *testing.T) {
	t.Parallel()
	requireOneReceipt(t, pipes.Settings{Database: "sqlite", Broker: "gochannel"})
}

// Also covers feature 2.1.
func TestRun_G4_pays_each_command_once_on_PostgreSQL(t *testing.T) {
	t.Parallel()
	for broker, variable := range map[string]string{"rabbitmq": testservice.AMQPVariable, "kafka": testservice.KafkaVariable} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			address := testservice.Address(t, variable)
			requireOneReceipt(t, pipes.Settings{
				Database: "postgres", DSN: testdb.Postgres(t).DSN,
				Broker: broker, BrokerURL: address, TopicPrefix: "example." + postbox.NewMessageID() + ".",
			})
		})
	}
}

// requireOneReceipt runs the example, which verifies itself.
func requireOneReceipt(t *testing.T, on pipes.Settings) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, settings{Settings: on, commands: 40}), out.String())

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Regexp(t, `^RESULT commands=40 payments=40 receipts=40 refused_and_requeued=4 duplicates_absorbed=[1-9]\d* receipts_published_twice=[1-9]\d* `+
		`unpaid=0 paid_twice=0 without_receipt=0 filed_twice=0 wrong_balances=0 dead=0 missing=0$`, lines[len(lines)-1], out.String())
}

// The example is worth something only if it sees what goes wrong.
func TestOutcome_detects_wrong_results(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]struct {
		statement string
		want      []string
	}{
		"nothing": {"SELECT 1", nil},
		"a command is not paid": {
			"INSERT INTO payments_commands VALUES ('3', 'a', 10)",
			[]string{"commands were not paid", "not as many"},
		},
		"a command is paid twice": {
			"INSERT INTO payments_payments VALUES ('2', 'a', 0)",
			[]string{"commands were paid twice", "not as many"},
		},
		"a payment has no receipt": {
			"UPDATE payments_filed SET command_id = '4' WHERE command_id = '2'",
			[]string{"payments have no receipt"},
		},
		"a receipt is filed twice": {
			"UPDATE payments_filed SET command_id = '1'",
			[]string{"payments have no receipt", "receipts were filed twice"},
		},
		"a debit is lost":   {"UPDATE payments_accounts SET cents = 90", []string{"balances are not"}},
		"a deposit is lost": {"UPDATE payments_accounts SET deposited = 90", []string{"balances are not"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.SQLite(t)
			database.Exec(t, tables)
			database.Exec(t, `
				INSERT INTO payments_commands VALUES ('1', 'a', 10), ('2', 'a', 10);
				INSERT INTO payments_payments VALUES ('1', 'a', 10), ('2', 'a', 10);
				INSERT INTO payments_filed VALUES ('1', 10), ('2', 10);
				INSERT INTO payments_accounts VALUES ('a', 80, 100);`)
			database.Exec(t, check.statement)
			b := &bank{Pipes: &pipes.Pipes{DB: database.DB}}
			o, err := b.outcome(t.Context())
			require.NoError(t, err)
			o.refused, o.doubled, o.duplicates = 1, 1, 1
			err = o.verdict()
			if check.want == nil {
				require.NoError(t, err)
				return
			}
			require.Len(t, strings.Split(err.Error(), "\n"), len(check.want), err)
			for _, want := range check.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
	for _, o := range []outcome{{dead: 1}, {missing: 1}, {missing: -1}} {
		o.refused, o.doubled, o.duplicates = 1, 1, 1
		require.Error(t, o.verdict())
	}
}
