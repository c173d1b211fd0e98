// Package health tells whether the forwarders and queues of a process work, for probes such as
// those of Kubernetes.
//
// There are two questions. Is a component alive, or would a restart help? And is it ready, so that
// it processes messages now? A component that waits for its database is alive and not ready. An
// outage of a broker changes neither: a restart would not help, and other topics go on.
//
// [Live] and [Ready] are HTTP handlers for these questions. They answer from memory, without a call
// to the database, so a database that hangs does not make them slow. docs/kubernetes.md shows how
// to use them.
package health
