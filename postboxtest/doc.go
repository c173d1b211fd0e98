// Package postboxtest helps to test services that use Postbox. It drains outboxes and queues while
// the test waits, returns the messages that were published, and lets time pass without waiting for
// it.
//
// Its helpers use the same engine as the service, on the test's own database. If something goes
// wrong, they fail the test. A database of SQLite in a file of the test needs no server.
package postboxtest
