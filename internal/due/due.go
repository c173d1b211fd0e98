// Package due knows when the messages of a queue are due. Most are due at once. In a queue with
// batches they are due by their age or on a schedule. The rule is stored with the queue, so every
// process that counts its messages knows which of them are late.
package due

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Rule says when a batch takes a message that is ready. The zero value is for messages that are due
// at once, and for batches that wait for ever until they are full.
type Rule struct {
	Age      time.Duration  // how long the oldest message waits for others
	Schedule string         // a cron expression; it excludes Age
	Zone     *time.Location // of the schedule
}

// storedRule is the stored form of a rule. Another machine may not know the name of the zone, so it
// gets the offset too.
type storedRule struct {
	Age      int64  `json:"age,omitempty"` // µs
	Schedule string `json:"schedule,omitempty"`
	Zone     string `json:"zone,omitempty"`
	Offset   int    `json:"offset,omitempty"` // s
}

// maxStored is the longest stored form.
const maxStored = 4096

// Encode returns the stored form: "" for the zero value, and for a schedule that is too long to be
// stored.
func (r Rule) Encode() string {
	if r.Age == 0 && r.Schedule == "" {
		return ""
	}
	stored := storedRule{Age: r.Age.Microseconds(), Schedule: r.Schedule}
	if r.Schedule != "" {
		stored.Zone = r.Zone.String()
		_, stored.Offset = time.Now().In(r.Zone).Zone()
	}
	text, _ := json.Marshal(stored) //nolint:errchkjson // texts and numbers can always be encoded
	if len(text) > maxStored {
		return ""
	}
	return string(text)
}

// decode reads the stored form. What it cannot read, it takes for no rule: the messages then count
// as due at once.
func decode(text string) (r Rule) {
	var stored storedRule
	if text == "" || json.Unmarshal([]byte(text), &stored) != nil {
		return r
	}
	r = Rule{Age: time.Duration(stored.Age) * time.Microsecond, Schedule: stored.Schedule, Zone: time.FixedZone("", stored.Offset)}
	if zone, err := time.LoadLocation(stored.Zone); err == nil && stored.Zone != "" && stored.Zone != "Local" {
		r.Zone = zone
	}
	return r
}

// cronFields lists the fields that a schedule may have. With six fields the first is seconds.
const cronFields = cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor

// Times returns the times of the schedule, nil without one.
func (r Rule) Times() (cron.Schedule, error) {
	if r.Schedule == "" {
		return nil, nil //nolint:nilnil // no schedule is no error
	}
	// The parser accepts a time zone in front, and panics if no space follows it.
	zoned := strings.HasPrefix(r.Schedule, "TZ=") || strings.HasPrefix(r.Schedule, "CRON_TZ=")
	if zoned && !strings.Contains(r.Schedule, " ") {
		return nil, fmt.Errorf("Schedule: %q names a time zone only: add a cron expression after it, such as \"0 0 * * *\"", r.Schedule)
	}
	schedule, err := cron.NewParser(cronFields).Parse(r.Schedule)
	if err != nil {
		return nil, fmt.Errorf("Schedule: %q is not a cron expression such as \"0 0 * * *\": %w", r.Schedule, err)
	}
	if _, constant := schedule.(cron.ConstantDelaySchedule); constant {
		return nil, fmt.Errorf("Schedule: %q names no fixed times, so each message would have a schedule of its own: set Age instead", r.Schedule)
	}
	if schedule.Next(time.Now()).IsZero() {
		return nil, fmt.Errorf("Schedule: %q never comes", r.Schedule)
	}
	return daylightSaving(r.Schedule, schedule, r.Zone), nil
}

// errNone is for a rule without a time.
var errNone = errors.New("neither an age nor a schedule")

// After returns a function that tells when a message is due that was stored at a time. A schedule
// does not store its last time: a message belongs to the first scheduled time after it was stored.
func (r Rule) After() (func(stored time.Time) time.Time, error) {
	times, err := r.Times()
	switch {
	case err != nil:
		return nil, err
	case times != nil:
		return func(stored time.Time) time.Time { return times.Next(stored.In(r.Zone)) }, nil
	case r.Age > 0:
		return func(stored time.Time) time.Time { return stored.Add(r.Age) }, nil
	}
	return nil, errNone
}

// Ready returns since when the oldest ready message is due, or when it will be: [dialect.Never]
// without one.
func Ready(a *dialect.Ages) int64 { return by(a, a.Ready) }

func by(a *dialect.Ages, stored int64) int64 {
	if stored == dialect.Never || a.Batches == "" {
		return stored
	}
	after, err := decode(a.Batches).After()
	if err != nil {
		return stored
	}
	return after(time.UnixMicro(stored)).UnixMicro()
}

// Since returns since when the oldest due message of a spool has been due: [dialect.Never] if none
// is.
func Since(a *dialect.Ages) int64 {
	waiting := a.Due
	if a.Retrying == dialect.Never { // all that wait do so for a time of their own, and then for their batch
		waiting = by(a, waiting)
	}
	since := int64(dialect.Never)
	for _, at := range []int64{Ready(a), waiting} {
		if at <= a.Clock || at == a.Ready { // what is ready is due, whatever the clock of its writer said
			since = min(since, at)
		}
	}
	return since
}
