package overload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postbox-go/watermill-postbox/internal/testservice"
	"github.com/postbox-go/watermill-postbox/proof/endurance/overload"
	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A short one of what make overload does for a minute each.
// Also covers G2, G3 and G4.
func TestOverload_G8_recovers_from_ten_times_the_capacity(t *testing.T) {
	t.Parallel()
	testservice.Address(t, place.Variable)
	var out strings.Builder
	err := overload.Run(t.Context(), overload.Config{Duration: 2 * time.Second, Out: &out})
	t.Log(out.String())
	require.NoError(t, err)
}
