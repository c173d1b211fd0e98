// Package cleanup deletes rows that are older than their retention: dead letters, history, failures
// and claims, in bounded steps, by one process at a time. It also looks for messages that no
// process handles, and logs them (unattended.go).
package cleanup
