// Package minutes keeps what each process did in the database itself: one small row a minute for
// each outbox and queue. The dashboard draws it, so that nobody needs another system to see what
// happened an hour or a week ago.
//
// Make a [Recorder] from the description of the database, and set it as Metrics of the description
// before you give that to publishers, forwarders, stores and queues:
//
//	recorder, err := minutes.New(database, minutes.Config{Next: prometheus}, logger)
//	defer recorder.Close()
//	database.Metrics = recorder
//
// A row has how many messages were stored, done, failed and dead in the minute, and the median and
// the 95th percentile of how long messages waited and of how long calls of publishers or handlers
// took. A minute without any of these has no row,
// except for the first one of a process. Rows are about 200 bytes.
//
// # When things go wrong
//
// If the database does not take a row, or does not answer, its numbers are added to those of the
// next minute: if it had taken the row, they are there twice. What a
// process that is killed has not yet written is lost: up to a minute of numbers, and no message.
// The minutes are those of the clock of each process.
package minutes
