package checker_test

import (
	"time"

	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// off is how far the clock of a process is off.
const off = 5 * time.Hour

var damagesToAccounts = []broken{
	{"G9 a message is done and dead", func(w *world) {
		w.produce("m", ledger.Receipts, "", history.Poison, history.Committed)
		w.through("m", "postman")
		w.die("postman", "m", allowed)
		w.say("operator-1/1", history.Healed, "m", "postman")
		w.apply("consumer-1/1", "postman", "m")
	}, says("one place each")},
	{"G9 F22 a message is dead twice", func(w *world) {
		w.Database.Letters = append(w.Database.Letters, w.Database.Letters[1])
	}, says("one place each")},
	{"G9 F15 a message is done and waits", func(w *world) {
		w.wait("auditor", "first")
	}, says("one place each", "caught up")},
	{"G9 a claimed message may wait for its end, but not for ever", func(w *world) {
		w.wait("scorer", "first")
	}, says("caught up")},
	{"G9 F15 a published message waits in the outbox", func(w *world) {
		w.wait("", "first")
	}, says("one place each", "caught up")},
	{"G9 a message is gone from an outbox that keeps all", func(w *world) {
		w.Database.Kept = w.Database.Kept[1:]
	}, says("one place each")},
	{"it never catches up", func(w *world) {
		w.CaughtUp = checker.NeverCaughtUp
	}, says("caught up")},
	{"it catches up late", func(w *world) {
		w.CaughtUp = w.Bounds.CatchUp + 1
	}, says("caught up")},
	{"G8 a process grows", func(w *world) {
		for range 3 {
			w.Memory = append(w.Memory, checker.Sample{Process: "worker-1/1", At: began, Bytes: w.Bounds.Memory + 1})
		}
	}, says("memory bounded")},
	{"G11 a message was stored by another clock", func(w *world) {
		w.plain("m", ledger.Orders, "", "scorer")
		w.wait("scorer", "m").Created = w.now.Add(-off)
	}, says("one clock", "caught up")},
	{"G11 a message is due by another clock", func(w *world) {
		w.plain("m", ledger.Orders, "", "scorer")
		w.wait("scorer", "m").Available = w.now.Add(off)
	}, says("one clock", "caught up")},
	{"G11 a letter was written by another clock", func(w *world) {
		w.Database.Letters[0].Created = w.now.Add(-off)
	}, says("one clock")},
	{"G11 a letter died by another clock", func(w *world) {
		w.Database.Letters[0].Died = w.now.Add(off)
	}, says("one clock")},
	{"G11 an attempt failed by another clock", func(w *world) {
		w.Database.Failures[0].At = w.now.Add(off)
	}, says("one clock")},
	{"G11 a message was kept by another clock", func(w *world) {
		w.Database.Kept[0].Created = w.now.Add(-off)
	}, says("one clock")},
	{"G11 a message was done by another clock", func(w *world) {
		w.Database.Kept[0].Done = w.now.Add(off)
	}, says("one clock")},
	{"G11 a claim is old", func(w *world) {
		w.Database.OldestClaim = w.now.Add(-off)
	}, says("one clock")},
	{"G11 a claim is of the future", func(w *world) {
		w.Database.NewestClaim = w.now.Add(off)
	}, says("one clock")},
	{"G11 a lease lasts by another clock", func(w *world) {
		w.Database.Leases[0].Until = w.now.Add(off)
	}, says("one clock")},
}
