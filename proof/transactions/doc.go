// Package transactions has no code but its tests: that messages are published in the transactions
// of other libraries, and that these libraries work in the transactions of handlers, as
// docs/transactions.md shows it. It is a module of its own, so that nobody else requires them.
//
// Generate the folder ent with
//
//	go run -mod=mod entgo.io/ent/cmd/ent@v0.14.5 generate --feature sql/execquery ./ent/schema
//
// and leave out its folders enttest and hook, which nothing here uses.
package transactions
