//go:build race

package drain

// raceDetector says that this is SQLite at a fiftieth of its speed.
const raceDetector = true
