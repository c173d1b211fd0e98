package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A message belongs to the first time of the schedule after it was stored, by the clocks of the
// schedule's time zone. Also covers feature 0.5.
func TestBatchConfig_schedules_in_time_zones(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	kolkata, err := time.LoadLocation("Asia/Kolkata") // UTC+5:30
	require.NoError(t, err)
	beirut, err := time.LoadLocation("Asia/Beirut")
	require.NoError(t, err)
	for name, test := range map[string]struct {
		schedule    string
		zone        *time.Location
		stored, due string
	}{
		"midnight in UTC is the default":         {"0 0 * * *", nil, "2026-06-01T22:30:00Z", "2026-06-02T00:00:00Z"},
		"midnight in summer":                     {"0 0 * * *", berlin, "2026-06-01T21:59:59Z", "2026-06-01T22:00:00Z"},
		"after midnight in summer":               {"@daily", berlin, "2026-06-01T22:00:01Z", "2026-06-02T22:00:00Z"},
		"exactly at midnight is the next day":    {"0 0 * * *", berlin, "2026-06-01T22:00:00Z", "2026-06-02T22:00:00Z"},
		"just before, in microseconds":           {"0 0 * * *", berlin, "2026-06-01T21:59:59.999999Z", "2026-06-01T22:00:00Z"},
		"midnight in winter":                     {"@midnight", berlin, "2026-12-01T22:59:59Z", "2026-12-01T23:00:00Z"},
		"the day that has 23 hours begins":       {"0 0 * * *", berlin, "2026-03-28T22:00:00Z", "2026-03-28T23:00:00Z"},
		"the day that has 23 hours ends":         {"0 0 * * *", berlin, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		"the day that has 25 hours begins":       {"0 0 * * *", berlin, "2026-10-24T21:00:00Z", "2026-10-24T22:00:00Z"},
		"the day that has 25 hours ends":         {"0 0 * * *", berlin, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		"a time that is skipped comes after it":  {"30 2 * * *", berlin, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"},
		"and only once":                          {"30 2 * * *", berlin, "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		"just before a time that is skipped":     {"30 2 * * *", berlin, "2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z"},
		"a time that comes twice, the first":     {"30 2 * * *", berlin, "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"},
		"a time that comes twice, not again":     {"30 2 * * *", berlin, "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		"within the hour that comes again":       {"30 2 * * *", berlin, "2026-10-25T01:10:00Z", "2026-10-26T01:30:00Z"},
		"a list of hours around the skipped one": {"30 1,2,3 * * *", berlin, "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"},
		"the hour after the skipped one":         {"30 1,2,3 * * *", berlin, "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"},
		"each hour where one is skipped":         {"30 * * * *", berlin, "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"},
		"each half hour where none comes":        {"*/30 2 * * *", berlin, "2026-03-28T12:00:00Z", "2026-03-30T00:00:00Z"},
		"each half hour where one comes twice":   {"*/30 2 * * *", berlin, "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z"},
		"six fields, a time that comes twice":    {"15 30 2 * * *", berlin, "2026-10-25T00:30:15Z", "2026-10-26T01:30:15Z"},
		"a zone of its own with a skipped hour":  {"CRON_TZ=Europe/Berlin 30 2 * * *", nil, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"},
		"each hour where one comes twice":        {"30 * * * *", berlin, "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
		"hourly where one comes twice":           {"CRON_TZ=Europe/Berlin @hourly", nil, "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"},
		"a midnight that is skipped":             {"@daily", beirut, "2026-03-28T12:00:00Z", "2026-03-28T22:00:00Z"},
		"a day of the week that is skipped":      {"30 2 * * SUN", berlin, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"},
		"each hour of the day that has 25 hours": {"0 * * * *", berlin, "2026-10-25T00:59:00Z", "2026-10-25T01:00:00Z"},
		"a zone that is half an hour off":        {"0 0 * * *", kolkata, "2026-06-01T12:00:00Z", "2026-06-01T18:30:00Z"},
		"six fields begin with seconds":          {"15 30 8 * * MON", nil, "2026-06-02T00:00:00Z", "2026-06-08T08:30:15Z"},
		"a day that not every year has":          {"0 0 29 2 *", nil, "2026-06-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		"a zone of the schedule's own":           {"CRON_TZ=Asia/Kolkata 0 0 * * *", berlin, "2026-06-01T12:00:00Z", "2026-06-01T18:30:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := BatchConfig{Schedule: test.schedule, TimeZone: test.zone}
			config.setDefaults()
			require.NoError(t, config.validate(dialect.Kind(postbox.SQLite)))
			gather, err := config.gather()
			require.NoError(t, err)
			require.True(t, gather.OnlyDue)
			stored, err := time.Parse(time.RFC3339, test.stored)
			require.NoError(t, err)
			require.Equal(t, test.due, gather.Due(stored).UTC().Format(time.RFC3339Nano))
			require.Equal(t, test.due, gather.Due(stored.In(kolkata)).UTC().Format(time.RFC3339Nano), "the process's zone means nothing")
		})
	}
}

func TestBatchConfig_age_or_size_alone(t *testing.T) {
	t.Parallel()
	stored := time.Date(2026, 3, 29, 0, 59, 59, 0, time.UTC)
	gather, err := BatchConfig{Age: 2 * time.Hour}.gather()
	require.NoError(t, err)
	require.False(t, gather.OnlyDue)
	require.Equal(t, stored.Add(2*time.Hour), gather.Due(stored))
	gather, err = BatchConfig{}.gather()
	require.NoError(t, err)
	require.Zero(t, gather.Due(stored), "it may wait for ever")
}

// Whatever is done to the clocks, a daily job runs once each day.
func TestBatchConfig_a_daily_schedule_comes_once_on_each_day(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut", "America/Havana", "UTC"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		for _, expression := range []string{"0 0 * * *", "59 0 * * *", "0 1 * * *", "45 1 * * *", "0 2 * * *", "15 2 * * *", "30 2 * * *", "0 3 * * *"} {
			schedule, err := BatchConfig{Schedule: expression, TimeZone: zone}.rule().Times()
			require.NoError(t, err)
			at := time.Date(2024, 1, 1, 12, 0, 0, 0, zone)
			for day := 2; day < 2000; day++ {
				at = schedule.Next(at)
				want := time.Date(2024, 1, day, 12, 0, 0, 0, zone)
				require.Equal(t, want.Format(time.DateOnly), at.In(zone).Format(time.DateOnly), "%s in %s", expression, name)
			}
		}
	}
}
