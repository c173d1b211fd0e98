package postbox

import "github.com/postbox-go/watermill-postbox/internal/keyhash"

// Lane returns the lane of an ordering key among so many, as Postbox computes it: by the FNV-1a
// hash of the key. It never changes. Use it to spread keys over several databases, or over the
// partitions of a broker: see docs/scaling.md.
func Lane(key string, lanes int) int { return keyhash.Lane(keyhash.Of(key), lanes) }
