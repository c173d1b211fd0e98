package testdb

import (
	"os"
	"testing"
)

// Service returns what the variable says of a service, or skips the test and says which one is missing.
func Service(tb testing.TB, variable string) string {
	tb.Helper()
	address := os.Getenv(variable)
	if address == "" {
		name := map[string]string{
			PostgresVariable: "PostgreSQL", PgBouncerVariable: "PgBouncer", MySQLVariable: "MariaDB or MySQL", AMQPVariable: "RabbitMQ", KafkaVariable: "Kafka",
		}[variable]
		tb.Skipf("%s is missing, %s is not set: make test runs the tests with it, through scripts/services", name, variable)
	}
	return address
}
