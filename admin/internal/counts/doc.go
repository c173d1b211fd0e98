// Package counts finds out how many messages there are, at a cost that does not grow with their
// number: a statement counts index entries, and stops behind a limit, which is usually [Cap]. So a
// number is exact up to the limit, and one above it says that there are more.
package counts
