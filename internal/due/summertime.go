package due

import (
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// fixedTimes is a schedule with fixed hours and minutes, in a time zone whose clocks may be set
// forward and back. On the days of a change it does what cron daemons do. A time that clocks skip
// is due immediately after the change. A time that clocks show twice is due the first time only.
// The cron library would leave out a skipped time on that day, and run a repeated time twice.
type fixedTimes struct {
	clock cron.SpecSchedule // the wall-clock times, written as UTC, in which each time of each day exists once
	zone  *time.Location
}

// daylightSaving returns the schedule of an expression as cron daemons would run it. Schedules with
// a wildcard for the minute or the hour follow elapsed time, which the library already does.
func daylightSaving(expression string, schedule cron.Schedule, zone *time.Location) cron.Schedule {
	spec, ok := schedule.(*cron.SpecSchedule)
	if !ok || hasWildcard(expression) {
		return schedule
	}
	if spec.Location != time.Local { //nolint:gosmopolitan // it stands for an expression without a zone
		zone = spec.Location
	}
	clock := *spec
	clock.Location = time.UTC
	return fixedTimes{clock: clock, zone: zone}
}

// hasWildcard reports whether the minute or the hour of an expression begins with a wildcard. Cron
// daemons use the same test.
func hasWildcard(expression string) bool {
	fields := strings.Fields(expression)
	if strings.HasPrefix(fields[0], "TZ=") || strings.HasPrefix(fields[0], "CRON_TZ=") {
		fields = fields[1:]
	}
	if len(fields) == 1 {
		return fields[0] == "@hourly"
	}
	minute := len(fields) - 5 // after the seconds, if there are any
	return strings.ContainsAny(fields[minute][:1]+fields[minute+1][:1], "*?")
}

// Next returns the first time of the schedule after t.
func (f fixedTimes) Next(t time.Time) time.Time {
	_, offset := t.In(f.zone).Zone()
	for shown := t.UTC().Add(time.Duration(offset) * time.Second); ; {
		shown = f.clock.Next(shown)
		if shown.IsZero() {
			return shown
		}
		if next := f.firstShown(shown); next.After(t) {
			return next
		}
	}
}

// firstShown returns when the clocks of the zone show a time for the first time. For a time that
// clocks skip, it returns the moment of the change.
func (f fixedTimes) firstShown(shown time.Time) time.Time {
	// The offset of a zone is less than a day, and clocks are not changed twice within two days. So
	// these are the offsets before and after a change.
	_, before := shown.Add(-24 * time.Hour).In(f.zone).Zone()
	_, after := shown.Add(24 * time.Hour).In(f.zone).Zone()
	for _, offset := range []int{before, after} {
		at := shown.Add(-time.Duration(offset) * time.Second).In(f.zone)
		if _, there := at.Zone(); there == offset {
			return at
		}
	}
	skipped, _ := shown.Add(-time.Duration(before) * time.Second).In(f.zone).ZoneBounds()
	return skipped
}
