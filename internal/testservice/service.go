// Package testservice tells tests where the services are that scripts/services started. It needs no
// driver and no client, so the tests of a broker's module that use it need those of no database.
package testservice

import (
	"os"
	"os/exec"
	"testing"
)

// Variables by which scripts/services tells where the servers are.
const (
	PostgresVariable    = "TEST_POSTGRES_DSN"
	PostgresLogVariable = "TEST_POSTGRES_LOG_DSN" // with wal_level=logical
	PgBouncerVariable   = "TEST_PGBOUNCER_DSN"
	MySQLVariable       = "TEST_MYSQL_DSN"
	AMQPVariable        = "TEST_AMQP_URI"
	KafkaVariable       = "TEST_KAFKA_BROKERS"
)

// Address returns what the variable says of a service, or skips the test and says which one is
// missing.
func Address(tb testing.TB, variable string) string {
	tb.Helper()
	address := os.Getenv(variable)
	if address == "" {
		name := map[string]string{
			PostgresVariable: "PostgreSQL", PostgresLogVariable: "PostgreSQL with wal_level=logical", PgBouncerVariable: "PgBouncer", MySQLVariable: "MariaDB or MySQL", AMQPVariable: "RabbitMQ", KafkaVariable: "Kafka",
		}[variable]
		tb.Skipf("%s is missing, %s is not set: make test runs the tests with it, through scripts/services", name, variable)
	}
	return address
}

// Program returns the path of a program that a test runs, or skips the test and says which Debian
// package has it. scripts/services installs these packages where it may, and CI fails if one is
// missing.
func Program(tb testing.TB, name, debianPackage string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		tb.Skipf("%s is missing: it is in the Debian package %s, which make test installs as root", name, debianPackage)
	}
	return path
}
