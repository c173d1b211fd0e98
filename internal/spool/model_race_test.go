//go:build race

package spool

// raceDetector says that this is SQLite at a fiftieth of its speed.
const raceDetector = true
