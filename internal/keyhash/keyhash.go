// Package keyhash finds ordering keys, and spreads them over lanes.
package keyhash

import "hash/fnv"

// Of returns the 64-bit hash of a key: FNV-1a over its bytes, read as a signed number because SQL
// has no unsigned ones. It is computed here and not in the database, so it is the same on every one
// of them, and it never changes: a row written by an older version must land in the same lane.
//
// Two keys are one if their texts are equal. With the same hash they share a lane.
func Of(key string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // a hash never returns an error
	return int64(h.Sum64())     //nolint:gosec // the bits are kept, the sign has no meaning
}

// Lane returns the lane of a key hash among so many. The upper half is folded into the lower one
// because the low bits of FNV-1a alone spread short keys badly.
func Lane(hash int64, lanes int) int {
	bits := uint64(hash)                          //nolint:gosec // the bits are kept, the sign has no meaning
	return int((bits ^ bits>>32) % uint64(lanes)) //nolint:gosec // lanes is positive, the result below it
}
