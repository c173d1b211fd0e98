//go:build !race

package drain

// raceDetector says whether the tests run with the race detector.
const raceDetector = false
