//go:build !race

package spool

// raceDetector says whether the tests run with the race detector.
const raceDetector = false
