// Package operate contains the actions of operators on spools: they list and count messages, pause and resume, change
// settings, run or bury a message, and requeue, resolve or delete dead letters. Drainers notice changes by the version
// of the spool's row. Package admin is the public interface.
package operate
