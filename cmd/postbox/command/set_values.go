package command

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Words that the flags of set take in place of a value.
const (
	unset     = "default"
	unlimited = "unlimited"
	off       = "off"
	forever   = "forever"
	none      = "none"
)

// noLimit is the stored value for the word none.
const noLimit = -1

// maxKept is the longest time to keep something.
const maxKept = maxDays * 24 * time.Hour

// setFlags are the new values, as the user wrote them; "" changes nothing.
type setFlags struct {
	pageSize, concurrency, pollMax, attempts, perSecond, maxConcurrent, history, retention string
}

// apply changes the settings that the flags name. It checks them itself, since errors must have the
// words that the flags take: those of the package admin are for programs.
func (f setFlags) apply(settings admin.Settings) (admin.Settings, error) {
	for _, n := range []struct {
		flag, text, word string
		wordValue, most  int
		to               *int
	}{
		{"page-size", f.pageSize, "", 0, spool.MaxPageSize, &settings.PageSize},
		{"concurrency", f.concurrency, "", 0, spool.MaxConcurrency, &settings.Concurrency},
		{"attempts", f.attempts, unlimited, -1, math.MaxInt32, &settings.Attempts},
		{"max-concurrent", f.maxConcurrent, none, noLimit, math.MaxInt32, &settings.MaxConcurrent},
	} {
		if set(n.to, n.text, n.word, n.wordValue) {
			continue
		}
		number, err := strconv.Atoi(n.text)
		if err != nil || number < 1 || number > n.most {
			return settings, usagef("--%s: %.30q is no whole number from 1 to %d: write one, or %s", n.flag, n.text, n.most, words(n.word))
		}
		*n.to = number
	}
	if !set(&settings.PerSecond, f.perSecond, none, noLimit) {
		rate, err := strconv.ParseFloat(f.perSecond, 64)
		if err != nil || !(rate >= spool.MinPerSecond && rate <= spool.MaxPerSecond) { // NaN is not
			return settings, usagef("--per-second: %.30q is no number from %s, which is one message in 28 hours, to %d: write one, or %s",
				f.perSecond, decimal(spool.MinPerSecond), spool.MaxPerSecond, words(none))
		}
		settings.PerSecond = rate
	}
	for _, s := range []struct {
		flag, text, word, least, most string
		from, to                      time.Duration
		value                         *time.Duration
	}{
		{"poll-max", f.pollMax, "", "1ms", "1h", spool.MinPollMax, spool.MaxPollMax, &settings.PollMax},
		{"history", f.history, off, "1s", "36500d", spool.MinKept, maxKept, &settings.History},
		{"retention", f.retention, forever, "1s", "36500d", spool.MinKept, maxKept, &settings.Retention},
	} {
		if set(s.value, s.text, s.word, -1) {
			continue
		}
		d, err := parseDuration(s.text)
		if err != nil || d < s.from || d > s.to {
			return settings, usagef("--%s: %.30q is no duration from %s to %s: write one such as 90s, 15m, 12h or 30d, or %s", s.flag, s.text, s.least, s.most, words(s.word))
		}
		*s.value = d
	}
	return settings, nil
}

// set stores what a text means that is no value: nothing, which changes nothing, or a word. It
// reports whether the text was one.
func set[T int | float64 | time.Duration](to *T, text, word string, wordValue T) bool {
	switch {
	case text == "":
	case text == unset:
		*to = 0
	case word != "" && text == word:
		*to = wordValue
	default:
		return false
	}
	return true
}

// words lists the words that a flag takes.
func words(own string) string {
	if own == "" {
		return strconv.Quote(unset)
	}
	return strings.Join([]string{strconv.Quote(own), strconv.Quote(unset)}, " or ")
}
