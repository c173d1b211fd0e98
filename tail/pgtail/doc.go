// Package pgtail lets forwarders read new messages from the log of PostgreSQL, beside polling.
//
//	follower, err := pgtail.New(pgtail.Config{DSN: "postgres://postbox_tail@db:5432/shop"})
//	...
//	f, err := forwarder.New(database, publisher, forwarder.Config{Tail: follower}, logger)
//
// A message reaches the publisher a fraction of a millisecond after its commit, without a poll and
// without NOTIFY. The rows stay the truth: what the log does not bring is found by polling, so a
// fault of the log costs latency, and never a message. docs/log-tailing.md explains how it works,
// and what the server needs: wal_level=logical, and the publication that [Setup] makes.
//
// This package is experimental: its names may change in a minor version.
package pgtail
