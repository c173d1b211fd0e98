package tail

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Snapshot says which transactions a statement of PostgreSQL has seen. It sees those that ended
// before it was taken.
type Snapshot struct {
	next    int64   // the first transaction that had not begun
	Running []int64 // earlier transactions that had not ended
}

// ParseSnapshot reads the text of a snapshot: xmin:xmax:xip,xip.
func ParseSnapshot(text string) (s Snapshot, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return s, fmt.Errorf("read snapshot %q: it does not have three parts", text)
	}
	if s.next, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return s, fmt.Errorf("read snapshot %q: %w", text, err)
	}
	if parts[2] == "" {
		return s, nil
	}
	for word := range strings.SplitSeq(parts[2], ",") {
		transaction, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return s, fmt.Errorf("read snapshot %q: %w", text, err)
		}
		s.Running = append(s.Running, transaction)
	}
	return s, nil
}

// Sees reports whether a transaction that has committed is visible in the snapshot. The log has the
// low 32 bits of its id. A transaction that is that near to the snapshot has only one id with these
// bits.
func (s *Snapshot) Sees(low uint32) bool {
	id := s.next - int64(int32(uint32(s.next)-low)) //nolint:gosec // only the low bits count
	return id < s.next && !slices.Contains(s.Running, id)
}
