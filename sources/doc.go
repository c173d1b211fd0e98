// Package sources takes messages over from the tables of other outboxes, so that a service can
// move to Postbox while it runs: set Sources in forwarder.Config to a [WatermillSQL] for each
// topic. See docs/adopt.md.
package sources
