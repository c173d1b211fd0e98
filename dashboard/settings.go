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

// settingField is a field of the form. Otherwise holds while it is empty.
type settingField struct {
	Name, Label, About, Value, Otherwise string

	read func(text string) error // into the settings
}

// Words in place of a number or a time.
const (
	unlimitedWord = "unlimited"
	noneWord      = "none"
	offWord       = "off"
	foreverWord   = "forever"
)

// settingFields are the fields, with the values that settings have. No message waits for an inbox,
// so only its history has an effect.
func settingFields(info admin.QueueInfo, s *admin.Settings) []settingField {
	history := settingField{"history", "Handled messages are kept for", "A time such as 12h or 7d, or " + offWord + ".", keptText(s.History, offWord), "off by default", readSpan(&s.History, offWord, spool.MinKept, maxDays*day)}
	if info.Target.Kind == inboxField {
		return []settingField{history}
	}
	concurrency, attempts, total := "64 by default", "10 by default", info.Limits.Total
	if info.Target.Kind == queueField {
		concurrency, attempts = "16 by default, 1 for batches", "15 by default"
	}
	return []settingField{
		{"page-size", "Messages read at once", "Up to 10,000.", numberText(s.PageSize, ""), "2000 by default", readNumber(&s.PageSize, "", spool.MaxPageSize)},
		{"concurrency", "Handlers at a time in each process", "Up to 10,000.", numberText(s.Concurrency, ""), concurrency, readNumber(&s.Concurrency, "", spool.MaxConcurrency)},
		{"poll-max", "Longest pause between two polls that find nothing", "From 1ms to 1h.", keptText(s.PollMax, ""), "1s by default", readSpan(&s.PollMax, "", spool.MinPollMax, spool.MaxPollMax)},
		{"attempts", "Attempts", "How often a message may fail, or " + unlimitedWord + ".", numberText(s.Attempts, unlimitedWord), attempts, readNumber(&s.Attempts, unlimitedWord, math.MaxInt32)},
		{"per-second", "Messages a second, in all processes", "A number, which may be a fraction from 0.00001 on, or " + noneWord + " for no limit.", rateText(s.PerSecond), configured(rateText(total.PerSecond), info), readRate(&s.PerSecond)},
		{"max-concurrent", "Handlers at a time, in all processes", "A number, or " + noneWord + " for no limit.", numberText(s.MaxConcurrent, noneWord), configured(numberText(total.MaxConcurrent, ""), info), readNumber(&s.MaxConcurrent, noneWord, math.MaxInt32)},
		history,
		{"retention", "Dead letters are kept for", "A time such as 30d, or " + foreverWord + ".", keptText(s.Retention, foreverWord), "30d by default", readSpan(&s.Retention, foreverWord, spool.MinKept, maxDays*day)},
	}
}

// configured says which limit holds without a stored one. Processes tell it.
func configured(limit string, info admin.QueueInfo) string {
	if limit == "" {
		return "no limit" + kept(info.Processes > 0, "", " by default")
	}
	return limit + kept(info.LimitsDiffer, " or more", "") + ", as configured"
}

func (h *Handler) settings(ctx context.Context, q *request) (any, error) {
	target, err := q.target()
	if err != nil {
		return nil, err
	}
	queues, err := h.admin.Queues(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(queues, func(info admin.QueueInfo) bool { return info.Target == target })
	if i < 0 || target.Kind == inboxField && !queues[i].HasHistory {
		return nil, notThere(target)
	}
	return settingsView{
		Target: target, Kind: kindOf(target), Fields: settingFields(queues[i], &queues[i].Settings), Was: settingsText(queues[i].Settings),
		Run: toTarget("settings-run", target), Back: toOverviewOf(target),
	}, nil
}

// settingsText writes settings so that they can be compared.
func settingsText(s admin.Settings) string { return fmt.Sprintf("%+v", s) }

var errOthersChanged = errors.New("another operator has changed the settings since you opened the form: open it again to see them")

func (h *Handler) storeSettings(ctx context.Context, q *request) (link, error) {
	target, err := q.target()
	if err != nil {
		return link{}, err
	}
	_, err = h.admin.ChangeSettings(ctx, target, func(stored *admin.Settings) error {
		if q.PostForm.Get("was") != settingsText(*stored) {
			return errOthersChanged
		}
		return q.readSettings(settingFields(admin.QueueInfo{Target: target}, stored))
	})
	return toOverviewOf(target, noticeField, "set"), err
}

// readSettings reads these fields. A setting for which the form has no field stays as it is stored.
func (q *request) readSettings(fields []settingField) error {
	var problems []error
	for _, field := range fields {
		if !q.PostForm.Has(field.Name) {
			continue
		}
		if err := field.read(strings.TrimSpace(q.PostForm.Get(field.Name))); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", field.Name, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return mistakeError{err}
	}
	return nil
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
