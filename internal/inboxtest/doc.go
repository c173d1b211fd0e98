// Package inboxtest helps tests of inboxes and their queues: a queue in a database of its own, with
// handlers whose effects and errors are noted.
package inboxtest
