package dashboard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// settingsView is the form in which a user changes the settings of an outbox, a queue or an inbox.
type settingsView struct {
	Target admin.Target
	Kind   string
	Fields []settingField
	// Was are the settings that the form shows, so that those that another operator stores
	// meanwhile are not lost.
	Was       string
	Run, Back link
}

// settingField is a field of the form.
type settingField struct{ Name, Label, About, Value string }

// Words in place of a number or a time.
const (
	unlimitedWord = "unlimited"
	noneWord      = "none"
	offWord       = "off"
	foreverWord   = "forever"
)

// settingFields are the fields, with the values that settings have. No message waits for an inbox,
// so only its history has an effect.
func settingFields(target admin.Target, s admin.Settings) []settingField {
	history := settingField{"history", "Handled messages are kept for", "A time such as 12h or 7d, or " + offWord + ".", keptText(s.History, offWord)}
	if target.Kind == inboxField {
		return []settingField{history}
	}
	return []settingField{
		{"page-size", "Messages read at once", "Up to 10,000.", numberText(s.PageSize, "")},
		{"concurrency", "Handlers at a time in each process", "Up to 10,000.", numberText(s.Concurrency, "")},
		{"poll-max", "Longest pause between two polls that find nothing", "From 1ms to 1h.", keptText(s.PollMax, "")},
		{"attempts", "Attempts", "How often a message may fail, or " + unlimitedWord + ".", numberText(s.Attempts, unlimitedWord)},
		{"per-second", "Messages a second, in all processes", "A number, which may be a fraction from 0.00001 on, or " + noneWord + " for no limit.", rateText(s.PerSecond)},
		{"max-concurrent", "Handlers at a time, in all processes", "A number, or " + noneWord + " for no limit.", numberText(s.MaxConcurrent, noneWord)},
		history,
		{"retention", "Dead letters are kept for", "A time such as 30d, or " + foreverWord + ".", keptText(s.Retention, foreverWord)},
	}
}

func (h *Handler) settings(ctx context.Context, q *request) (any, error) {
	target, stored, err := h.stored(ctx, q)
	if err != nil {
		return nil, err
	}
	return settingsView{
		Target: target, Kind: kindOf(target), Fields: settingFields(target, stored), Was: settingsText(stored),
		Run: toTarget("settings-run", target), Back: toOverviewOf(target),
	}, nil
}

// stored returns the outbox, the queue or the inbox of the address, and its settings.
func (h *Handler) stored(ctx context.Context, q *request) (admin.Target, admin.Settings, error) {
	target, err := q.target()
	if err != nil {
		return target, admin.Settings{}, err
	}
	queues, err := h.admin.Queues(ctx)
	if err != nil {
		return target, admin.Settings{}, err
	}
	i := slices.IndexFunc(queues, func(info admin.QueueInfo) bool { return info.Target == target })
	if i < 0 || target.Kind == inboxField && !queues[i].HasHistory {
		return target, admin.Settings{}, notThere(target)
	}
	return target, queues[i].Settings, nil
}

// settingsText writes settings so that they can be compared.
func settingsText(s admin.Settings) string { return fmt.Sprintf("%+v", s) }

var errOthersChanged = errors.New("another operator has changed the settings since you opened the form: open it again to see them")

func (h *Handler) storeSettings(ctx context.Context, q *request) (link, error) {
	target, err := q.target()
	if err != nil {
		return link{}, err
	}
	_, err = h.admin.ChangeSettings(ctx, target, func(stored *admin.Settings) (err error) {
		if q.PostForm.Get("was") != settingsText(*stored) {
			return errOthersChanged
		}
		*stored, err = q.readSettings(settingFields(target, *stored), *stored)
		return err
	})
	return toOverviewOf(target, noticeField, "set"), err
}

// readSettings reads these fields of the form. A setting for which the form has no field stays as
// it is stored.
func (q *request) readSettings(fields []settingField, stored admin.Settings) (admin.Settings, error) {
	s := stored
	var problems []error
	read := func(name string, into func(text string) error) {
		known := slices.ContainsFunc(fields, func(field settingField) bool { return field.Name == name })
		if !known || !q.PostForm.Has(name) {
			return
		}
		if err := into(strings.TrimSpace(q.PostForm.Get(name))); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	read("page-size", readNumber(&s.PageSize, "", spool.MaxPageSize))
	read("concurrency", readNumber(&s.Concurrency, "", spool.MaxConcurrency))
	read("poll-max", readSpan(&s.PollMax, "", spool.MinPollMax, spool.MaxPollMax))
	read("attempts", readNumber(&s.Attempts, unlimitedWord, math.MaxInt32))
	read("per-second", readRate(&s.PerSecond))
	read("max-concurrent", readNumber(&s.MaxConcurrent, noneWord, math.MaxInt32))
	read("history", readSpan(&s.History, offWord, spool.MinKept, maxDays*day))
	read("retention", readSpan(&s.Retention, foreverWord, spool.MinKept, maxDays*day))
	if err := errors.Join(problems...); err != nil {
		return s, mistakeError{err}
	}
	return s, nil
}

// reads reads a value, the word for a negative one, or nothing, which is 0. The errors of package
// admin have other words for these.
func reads[N int | float64 | time.Duration](into *N, word string, read func(text string) (N, error)) func(text string) error {
	return func(text string) (err error) {
		switch text {
		case "":
			*into = 0
		case word:
			*into = -1
		default:
			*into, err = read(text)
		}
		return err
	}
}

// readNumber reads a number from 1 to most, or the word for no limit.
func readNumber(into *int, word string, most int) func(text string) error {
	return reads(into, word, func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > most {
			return 0, fmt.Errorf("%.30q is no whole number from 1 to %d", text, most)
		}
		return n, nil
	})
}

// readRate reads what rateText writes.
func readRate(into *float64) func(text string) error {
	return reads(into, noneWord, func(text string) (float64, error) {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= spool.MinPerSecond && n <= spool.MaxPerSecond) { // NaN is not
			return 0, fmt.Errorf("%.30q is no number from %s to %d", text, rateText(spool.MinPerSecond), spool.MaxPerSecond)
		}
		return n, nil
	})
}

const day = 24 * time.Hour

// maxDays is the longest time that a field takes.
const maxDays = 36500

// readSpan reads a time from least to most, or the word for a negative one.
func readSpan(into *time.Duration, word string, least, most time.Duration) func(text string) error {
	return reads(into, word, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if days, isDays := strings.CutSuffix(text, "d"); isDays {
			var n int
			n, err = strconv.Atoi(days)
			d = time.Duration(min(n, maxDays+1)) * day
		}
		if err != nil || d < least || d > most {
			return 0, fmt.Errorf("%.30q is not a time such as 90s, 12h or 30d, from %s to %s", text, keptText(least, ""), keptText(most, ""))
		}
		return d, nil
	})
}

// numberText writes what readNumber reads.
func numberText(n int, word string) string {
	switch n {
	case 0:
		return ""
	case -1:
		return word
	default:
		return strconv.Itoa(n)
	}
}

// rateText writes a number of messages a second.
func rateText(n float64) string {
	switch {
	case n == 0:
		return ""
	case n < 0:
		return noneWord
	default:
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
}

// rateFact is such a number on a page, with the pause between two messages if that is longer than a
// second: an outbox with a low limit seems to hang.
func rateFact(n float64) string {
	if n <= 0 || n >= 1 {
		return rateText(n)
	}
	return rateText(n) + ", one message in " + span(time.Duration(float64(time.Second)/n))
}

// keptText writes what readSpan reads.
func keptText(d time.Duration, word string) string {
	switch {
	case d == 0:
		return ""
	case d < 0:
		return word
	case d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	default:
		return d.String()
	}
}
