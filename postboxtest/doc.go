// Package postboxtest helps to test services that use Postbox: it works off what stands in the database while the test
// waits, says what was published, and lets time pass without waiting for it.
//
// Its helpers use the same engine as the service, on the test's own database, and fail the test when something goes
// wrong. For handlers that need no database at all, there is inboxstore/memstore.
package postboxtest
