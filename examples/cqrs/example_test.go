package main

import (
	"bytes"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/cqrs/contract"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// The example verifies itself. Also covers G1, G3 and G5.
func TestRun_G4_each_command_and_event_has_each_effect_once(t *testing.T) {
	t.Parallel()
	for marshaler := range marshalers {
		t.Run(marshaler+" on sqlite and gochannel", func(t *testing.T) {
			t.Parallel()
			requireResult(t, pipes.Settings{Database: "sqlite", Broker: "gochannel"}, marshaler)
		})
	}
	for broker, variable := range map[string]string{"rabbitmq": testservice.AMQPVariable, "kafka": testservice.KafkaVariable} {
		t.Run("protobuf on postgres and "+broker, func(t *testing.T) {
			t.Parallel()
			address := testservice.Address(t, variable)
			requireResult(t, pipes.Settings{
				Database: "postgres", DSN: testdb.Postgres(t).DSN,
				Broker: broker, BrokerURL: address, TopicPrefix: "example." + postbox.NewMessageID() + ".",
			}, "protobuf")
		})
	}
}

func requireResult(t *testing.T, settings pipes.Settings, marshaler string) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, settings, marshaler, 50), out.String())
	require.True(t, strings.HasSuffix(out.String(), "\nRESULT orders=50 lost=0 applied_twice=0 order_violations=0 dead_letters=0\n"), out.String())
}

func TestMalformed_payloads_are_permanent_errors(t *testing.T) {
	t.Parallel()
	for name, marshaler := range marshalers {
		for _, payload := range []string{"{", `"text"`} {
			msg := message.NewMessage("1", []byte(payload))
			err := marshaler.Unmarshal(msg, &contract.OrderPlaced{})
			require.Error(t, err, "%s %s", name, payload)
			require.ErrorIs(t, malformed(msg, err), postbox.ErrPermanent, "%s %s", name, payload)
		}
	}
	require.NotErrorIs(t, malformed(nil, errPlanned), postbox.ErrPermanent)
}

// The example is worth something only if it sees what goes wrong.
func TestVerify_detects_wrong_results(t *testing.T) {
	t.Parallel()
	p, err := pipes.Settings{Database: "sqlite", Broker: "gochannel"}.Open(t.Context(), prefix)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	_, err = p.DB.ExecContext(t.Context(), tables+`
		INSERT INTO cqrs_orders VALUES ('1', 'a'), ('2', 'a');
		INSERT INTO cqrs_payments VALUES ('1'), ('2');
		INSERT INTO cqrs_points VALUES ('1'), ('2');
		INSERT INTO cqrs_sales VALUES ('1', 'a', 0), ('2', 'a', 1);`)
	require.NoError(t, err)
	require.NoError(t, verify(t.Context(), &bytes.Buffer{}, p.DB, &trouble{}))
	for change, problem := range map[string]string{
		"DELETE FROM cqrs_payments WHERE order_id = '1'": "lost=1 applied_twice=0 order_violations=0",
		"INSERT INTO cqrs_points VALUES ('1')":           "lost=0 applied_twice=1 order_violations=0",
		"UPDATE cqrs_sales SET position = 1 - position":  "lost=0 applied_twice=0 order_violations=1",
	} {
		require.NoError(t, inSavepoint(t, p.DB, change, func() {
			var out bytes.Buffer
			require.Error(t, verify(t.Context(), &out, p.DB, &trouble{}))
			require.Contains(t, out.String(), problem)
		}))
	}
}

func inSavepoint(t *testing.T, db *sql.DB, change string, check func()) error {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), "SAVEPOINT change; "+change); err != nil {
		return err
	}
	check()
	_, err := db.ExecContext(t.Context(), "ROLLBACK TO change; RELEASE change")
	return err
}
