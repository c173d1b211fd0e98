// Package counts finds out how many messages there are, at a cost that does not grow with their number.
//
// Up to [Cap] a number is exact: a statement counts index entries, and stops behind the cap. Above the cap the number
// comes from a stored snapshot, which one process at a time renews (see package cleanup), and which says how old it is.
// Without a snapshot the number is a lower bound.
package counts
