package inboxstore

import (
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// daily is a schedule with fixed hours, in a zone whose clocks are set forward and back: it treats those days as cron daemons do. What is due in
// the hour that is skipped is due at its end, and what is due in the hour that comes twice is due in the first one. A schedule with each
// minute or each hour goes by the time that passes, and needs none of this.
type daily struct {
	spec cron.SpecSchedule // in UTC, which stands for what clocks show
	zone *time.Location
}

// summerTime returns the schedule of an expression as cron daemons have it.
func summerTime(expression string, schedule cron.Schedule, zone *time.Location) cron.Schedule {
	spec, ok := schedule.(*cron.SpecSchedule)
	if !ok || isWildcard(expression) {
		return schedule
	}
	if spec.Location != time.Local { //nolint:gosmopolitan // it stands for no zone of its own
		zone = spec.Location
	}
	inUTC := *spec
	inUTC.Location = time.UTC
	return daily{spec: inUTC, zone: zone}
}

// isWildcard says whether the minute or the hour of an expression begins with a star, as cron daemons do it.
func isWildcard(expression string) bool {
	fields := strings.Fields(expression)
	if strings.HasPrefix(fields[0], "TZ=") || strings.HasPrefix(fields[0], "CRON_TZ=") {
		fields = fields[1:]
	}
	if len(fields) < 5 {
		return fields[0] == "@hourly"
	}
	first := len(fields) - 5 // there may be seconds in front
	return strings.ContainsAny(fields[first][:1]+fields[first+1][:1], "*?")
}

// Next returns the first time of the schedule after t.
func (d daily) Next(t time.Time) time.Time {
	t = t.In(d.zone)
	_, offset := t.Zone()
	for clock := t.UTC().Add(time.Duration(offset) * time.Second); ; {
		clock = d.spec.Next(clock)
		if clock.IsZero() {
			return clock
		}
		if next := d.instant(clock); next.After(t) {
			return next
		}
	}
}

// instant is when the clocks of the zone show that time first, or the end of the hour that is skipped.
func (d daily) instant(clock time.Time) time.Time {
	// Clocks are set at most once within two days.
	_, before := clock.Add(-24 * time.Hour).In(d.zone).Zone()
	_, after := clock.Add(24 * time.Hour).In(d.zone).Zone()
	for _, offset := range []int{before, after} {
		at := clock.Add(-time.Duration(offset) * time.Second).In(d.zone)
		if _, there := at.Zone(); there == offset {
			return at
		}
	}
	set, _ := clock.Add(-time.Duration(before) * time.Second).In(d.zone).ZoneBounds()
	return set
}
