// Package budget holds figures of the project that may not grow: see figures.txt. Its test counts
// them.
package budget
