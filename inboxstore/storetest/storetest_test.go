package storetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/postbox-go/watermill-postbox/inboxstore/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore_keeps_the_contract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Features{Delays: true, RefusesWhenClosed: true}, newHarness)
}
