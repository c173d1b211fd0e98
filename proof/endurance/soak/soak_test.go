package soak_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postbox-go/watermill-postbox/internal/testservice"
	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
	"github.com/postbox-go/watermill-postbox/proof/endurance/soak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Too short for a trend: it shows that the whole of it runs, and that every message has its effects
// once. Also covers G2 and G4.
func TestSoak_G9_runs_the_whole_pipeline(t *testing.T) {
	t.Parallel()
	testservice.Address(t, place.Variable)
	var out strings.Builder
	err := soak.Run(t.Context(), soak.Config{Duration: 2 * time.Second, Interval: 500 * time.Millisecond, Rate: 20, Broker: soak.GoChannel, Out: &out})
	t.Log(out.String())
	require.NoError(t, err)
	require.Contains(t, out.String(), " lost=0 applied_twice=0 out_of_order=0 rising=none ")
}

func TestSoak_says_what_is_wrong_with_its_configuration(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, soak.Run(t.Context(), soak.Config{}), "must be positive")
}
