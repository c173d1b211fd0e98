// Package cleanup deletes what is older than its retention: dead letters, history, failures and claims, in bounded steps, by one process at a time.
// It also looks for messages that no process handles, and logs them (unattended.go).
package cleanup
