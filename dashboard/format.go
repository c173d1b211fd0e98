package dashboard

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/admin"
)

// utc writes a time for people, and a dash for none.
func utc(at time.Time) string {
	if at.IsZero() {
		return "–"
	}
	return at.UTC().Format("2006-01-02 15:04:05")
}

// when writes a time of a list: that of a day without its date while that day lasts, and how long
// ago it was, or in what time it will be.
func when(at time.Time) template.HTML {
	if at.IsZero() {
		return "–"
	}
	clock, now := utc(at), time.Now()
	ago := map[bool]string{true: "in %s", false: "%s ago"}[at.After(now)]
	if today := now.UTC().Format(time.DateOnly) + " "; strings.HasPrefix(clock, today) {
		clock = clock[len(today):]
	}
	words := strings.Fields(span(max(now.Sub(at).Abs(), time.Second)))
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s · `+ago+`</time>`, at.UTC().Format(time.RFC3339), clock, words[0]+" "+words[1])) //nolint:gosec // digits and words of ours
}

// span writes a duration for people: its two largest units.
func span(d time.Duration) string {
	switch {
	case d >= day:
		return fmt.Sprintf("%d d %d h", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d >= time.Second:
		return fmt.Sprintf("%d s", d/time.Second)
	default:
		return fmt.Sprintf("%d ms", max(0, d.Milliseconds()))
	}
}

// number writes a number in groups of three digits.
func number(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// amount writes a number of messages, of which no more than some are counted.
func amount(n int) string {
	if n > admin.CountedUpTo {
		return number(admin.CountedUpTo) + "+"
	}
	return number(n)
}

// byteSize writes a number of bytes.
func byteSize(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return plural(n, "byte")
	}
}

// plural is a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// amountOf is a number of messages with its noun.
func amountOf(n int, noun string) string {
	if n > admin.CountedUpTo {
		return amount(n) + " " + noun + "s"
	}
	return plural(n, noun)
}
