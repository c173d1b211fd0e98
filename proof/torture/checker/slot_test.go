package checker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// inLog are messages that are in the log alone, and have not been published.
var inLog = ledger.NameInLog("m")

func (w *world) emitInLog(message string) {
	w.produce(message, ledger.Receipts, ledger.NameInLog("k"), history.Plain, history.Committed)
}

// loseSlot lets the slot be lost, and an operator accept that.
func (w *world) loseSlot(settled ...string) {
	w.next()
	lost := checker.SlotLoss{Settled: map[string]bool{}, Accepted: w.now}
	for _, message := range settled {
		lost.Settled[message] = true
	}
	w.SlotLosses = append(w.SlotLosses, lost)
}

func TestCheck_excuses_what_a_slot_has_taken_with_it(t *testing.T) {
	t.Parallel()
	w := busy()
	direct, row := ledger.NameInLog("direct"), ledger.NameInLog("row")
	for _, message := range []string{direct, row} {
		w.emitInLog(message)
		w.send("forwarder-1/1", message)
		w.applied(message)
	}
	w.Database.Rows = map[string]bool{row: true}
	w.emitInLog(inLog)
	w.loseSlot(direct, row)
	report := checker.Check(w.end())
	require.True(t, report.OK(), report.String())
	require.Equal(t, []int{3, 1, 1, 1}, []int{report.Counts.Logged, report.Counts.Direct, report.Counts.LostWithSlot, report.Counts.SlotLosses})
	lost := checker.LostWorks(w.end())
	require.True(t, lost("postman", inLog))
	require.False(t, lost("postman", direct))
}

// damagesToTheLog are what no loss of a slot excuses.
var damagesToTheLog = []broken{
	{"G1 a message in the log is not published, and no slot was lost", func(w *world) {
		w.emitInLog(inLog)
	}, says("nothing lost", "published")},
	{"G1 a message in the log that was read before the slot was lost is not published", func(w *world) {
		w.emitInLog(inLog)
		w.loseSlot(inLog)
	}, says("nothing lost", "published")},
	{"G1 a message that was written into the log after the loss is not published", func(w *world) {
		w.loseSlot()
		w.emitInLog(inLog)
	}, says("nothing lost", "published")},
	{"G2 a message that was published from the log is lost on its way", func(w *world) {
		w.emitInLog(inLog)
		w.send("forwarder-1/1", inLog)
		w.loseSlot()
	}, says("nothing lost")},
	{"G1 a row is lost with a slot", func(w *world) {
		w.produce("m", ledger.Receipts, "", history.Plain, history.Committed)
		w.leave("m")
		w.loseSlot()
	}, says("nothing lost", "published")},
}
