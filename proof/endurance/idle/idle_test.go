package idle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postbox-go/watermill-postbox/internal/testservice"
	"github.com/postbox-go/watermill-postbox/proof/endurance/idle"
	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A short form of make idle: the server forgets most of the log that others write.
func TestIdle_G8_keeps_no_log_for_a_forwarder_without_messages(t *testing.T) {
	t.Parallel()
	testservice.Address(t, place.LogVariable)
	var out strings.Builder
	err := idle.Run(t.Context(), idle.Config{Duration: 5 * time.Second, Interval: 250 * time.Millisecond, Rate: 10, Checkpoints: true, Out: &out})
	t.Log(out.String())
	require.NoError(t, err)
	require.Contains(t, out.String(), "RESULT idle minutes=")
}

func TestIdle_says_what_is_wrong_with_its_configuration(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, idle.Run(t.Context(), idle.Config{}), "must be positive")
}
