// Package pgxbox lets a service that has a [pgxpool.Pool], and no *sql.DB, use Postbox. Outboxes,
// inboxes, queues and batches work on the connections of that pool, and handlers get a [pgx.Tx]:
// its batches, its COPY and its types take part in the transaction that Postbox commits.
//
//	database := pgxbox.Database(pool) // for each constructor of Postbox
//
// In a handler, [TxFromContext] stands in for postbox.TxFromContext, and elsewhere [InTx] for
// postbox.InTx. All else is as the other pages say.
package pgxbox
