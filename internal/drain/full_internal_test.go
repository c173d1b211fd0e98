package drain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A memory that is full of other messages is usual under load, also if a page of messages cannot be
// settled.
func TestDrainer_logs_messages_that_cannot_be_settled_only_if_they_leave_no_room(t *testing.T) {
	t.Parallel()
	const page = 20 // three of them are in memory
	for name, c := range map[string]struct {
		resting, told int
	}{
		"nothing": {}, "a page and some rest": {resting: 50}, "two pages and a half rest": {resting: 51, told: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logger := watermill.NewCaptureLogger()
			s := &settler{core: &core{spool: &spool.Spool{}, logger: logger}}
			s.setbacks.resting = make([]*schedule.Entry, c.resting)
			for range 3 { // it is said once
				s.logFullMemory(page)
			}
			logged := logger.Captured()[watermill.ErrorLogLevel]
			require.Len(t, logged, c.told)
			for _, message := range logged {
				require.ErrorIs(t, message.Err, errMemoryFull)
			}
		})
	}
}
