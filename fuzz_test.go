package postbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Whoever sends a message writes its path: whatever stands there, it is read as it was written, or
// refused for good.
func FuzzCausationPath(f *testing.F) {
	for _, path := range []string{
		``, `null`, `[]`, `["orders/OrderPlaced"]`, `["a/b","c%2Fd/e"]`, `["a"]`, `["a/b/c"]`, `["%/b"]`, `["/"]`, `{}`, `[1]`, "[\"\xff/\\u0000\"]",
	} {
		f.Add(path, "billing", "OrderPlaced")
	}
	f.Add(`[]`, "a/b", "\x00%\xff")
	f.Fuzz(func(t *testing.T, path, module, eventType string) {
		msg := message.NewMessage("id", nil)
		msg.Metadata.Set(MetadataCausationPath, path)
		hop := Hop{Module: module, EventType: eventType}
		causation, err := CausationOf(msg, hop)
		if err != nil {
			require.ErrorIs(t, err, ErrPermanent)
			return
		}
		require.Equal(t, hop, causation.Path[len(causation.Path)-1])
		read, err := decodePath(encodePath(causation.Path))
		require.NoError(t, err)
		require.Equal(t, causation.Path, read)
		require.Equal(t, encodePath(causation.Path), causation.Stamp(msg.Metadata)[MetadataCausationPath])
	})
}

// Every key has a lane, on every number of lanes that a spool can have.
func FuzzLane(f *testing.F) {
	f.Add("", 1)
	f.Add("customer-1", 32)
	f.Add("\x00\xff", 256)
	f.Fuzz(func(t *testing.T, key string, lanes int) {
		if lanes < 1 || lanes > 256 {
			return
		}
		lane := Lane(key, lanes)
		require.GreaterOrEqual(t, lane, 0)
		require.Less(t, lane, lanes)
	})
}
