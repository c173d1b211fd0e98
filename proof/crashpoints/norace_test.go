//go:build !race

package crashpoints_test

// raceDetector says that everything takes ten times as long.
const raceDetector = false
