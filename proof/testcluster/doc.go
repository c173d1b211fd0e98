// Package testcluster starts database servers that can fail over, for tests and for the torture
// run: a PostgreSQL primary with two standbys ([StartPostgres]), and a MariaDB primary with one
// replica ([StartMariaDB]). A [Relay] with a fixed address stands before each of the two and leads
// clients to whichever server is the primary. Both nodes of Galera ([StartGalera]) take writes. It
// also starts brokers on three nodes each, any of which can be killed: [StartKafka] and
// [StartRabbitMQ].
//
// The servers run from the binaries of this machine, on loopback, in a temporary folder that Close
// removes. If the process that started a cluster is killed, a watchdog stops the servers and
// removes the folder. Only processes that were started here are ever stopped.
package testcluster

import "errors"

// ErrUnavailable says that the binaries of a cluster are not on this machine, or cannot be run
// here. Servers from Docker Compose cannot fail over: nothing outside the container can promote a
// replica or replace its data.
var ErrUnavailable = errors.New("no cluster can run on this machine")
