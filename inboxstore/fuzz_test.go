package inboxstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// maxClaim is what the column of claims takes on MySQL, in bytes.
const maxClaim = 255

// Ids come from whoever publishes: two of them have one claim only if they are the same, and every
// claim fits.
func FuzzKey(f *testing.F) {
	f.Add("1", "2")
	f.Add("", "\x00")
	f.Add("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8")
	f.Add("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01arz3ndektsv4rrffq69g5fav")
	f.Add("{6ba7b810-9dad-11d1-80b4-00c04fd430c8}", "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	f.Add(string(make([]byte, maxTextID)), string(make([]byte, maxTextID+1)))
	f.Fuzz(func(t *testing.T, one, other string) {
		a := Key{Consumer: "billing", Topic: "orders", MessageID: one}.bytes()
		b := Key{Consumer: "billing", Topic: "orders", MessageID: other}.bytes()
		require.Equal(t, one == other, string(a) == string(b))
		require.NotEqual(t, lockOf(a), b)
		require.LessOrEqual(t, len(a), maxClaim)

		c := Key{Consumer: one, Topic: other, MessageID: "1"}.bytes()
		d := Key{Consumer: other, Topic: one, MessageID: "1"}.bytes()
		require.Equal(t, one == other, string(c) == string(d), "who handles what is told apart")
	})
}
