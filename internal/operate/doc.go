// Package operate is what operators do to spools: they list and count messages, pause and resume, change settings, run or bury a message, and
// requeue, resolve or delete dead letters. Drainers hear of it by the version of the spool's row. Package admin is its door.
package operate
