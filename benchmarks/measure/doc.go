// Package measure runs contenders in turns on one PostgreSQL and tells what a message cost each of
// them: time, statements, round trips, transactions, bytes of WAL, allocations.
package measure
