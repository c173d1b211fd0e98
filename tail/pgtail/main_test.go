package pgtail_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(victimVariable); address != "" {
		os.Exit(runVictim(address))
	}
	goleak.VerifyTestMain(m)
}
