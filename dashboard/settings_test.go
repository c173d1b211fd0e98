package dashboard_test

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// fields are the values in the fields of a form.
func fields(a answer) url.Values {
	form := url.Values{}
	for _, found := range regexp.MustCompile(`<input[^>]* name="([^"]+)" value="([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
		form.Set(found[1], found[2])
	}
	return form
}

func (b *bench) settings() admin.Settings {
	b.Helper()
	queues, err := b.Admin.Queues(b.Context())
	require.NoError(b, err)
	return queues[0].Settings
}

func TestSettings_are_shown_changed_and_left_to_the_processes(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{Authorise: as(dashboard.Access{Actor: "ada", Read: true, Act: true})})
	b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
	page := b.page(b.linkTo(b.page("queue?outbox=outbox"), "Change the settings…"))
	form := fields(page)
	require.Len(t, form, 9)
	for field, value := range map[string]string{
		"page-size": " 500", "concurrency": "32", "poll-max": "250ms", "attempts": "unlimited", "per-second": "0.5", "max-concurrent": "none",
		"history": "7d", "retention": "forever",
	} {
		require.Empty(t, form.Get(field), field)
		form.Set(field, value)
	}
	stored := b.do("settings-run?outbox=outbox", form)
	require.Contains(t, stored.text(), "The settings are stored.")
	require.Contains(t, stored.text(), "Handled messages are kept for 7 d 0 h")
	want := admin.Settings{
		PageSize: 500, Concurrency: 32, PollMax: 250 * time.Millisecond, Attempts: -1, PerSecond: 0.5, MaxConcurrent: -1,
		History: 7 * 24 * time.Hour, Retention: -1,
	}
	require.Equal(t, want, b.settings())

	again := fields(b.page("settings?outbox=outbox"))
	require.Equal(t, []string{"500", "32", "250ms", "unlimited", "0.5", "none", "7d", "forever"}, []string{
		again.Get("page-size"), again.Get("concurrency"), again.Get("poll-max"), again.Get("attempts"), again.Get("per-second"), again.Get("max-concurrent"),
		again.Get("history"), again.Get("retention"),
	})
	again.Set("concurrency", "")
	again.Set("history", "off")
	b.do("settings-run?outbox=outbox", again)
	want.Concurrency, want.History = 0, -1
	require.Equal(t, want, b.settings())

	acts, _, err := b.Admin.Audit(t.Context(), admin.Filter{Actor: "ada", Action: "set", Target: admin.Outbox("outbox")})
	require.NoError(t, err)
	require.Len(t, acts, 2)
	require.Contains(t, acts[1].Note, `"concurrency":32`)
}

// An empty field says what holds. The documents of the packages have the same defaults.
func TestSettings_show_what_is_in_force(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
	b.Enqueue("m-2", "", "{}")
	shown := func(page string) map[string]string {
		said := map[string]string{}
		for _, field := range regexp.MustCompile(`<input name="([^"]+)" value="[^"]*"(?: placeholder="([^"]*)")?`).FindAllStringSubmatch(b.page(page).body, -1) {
			said[field[1]] = field[2]
		}
		return said
	}
	require.Equal(t, map[string]string{
		"page-size": "2000 by default", "concurrency": "64 by default", "poll-max": "1s by default", "attempts": "10 by default", "per-second": "no limit by default",
		"max-concurrent": "no limit by default", "history": "off by default", "retention": "30d by default",
	}, shown("settings?outbox=outbox"))
	queue := shown("settings?queue=fraud+checks")
	require.Equal(t, []string{"16 by default, 1 for batches", "15 by default"}, []string{queue["concurrency"], queue["attempts"]})

	b.Beat("host 42", spool.Heartbeat{InFlight: map[string]int{}, Limits: postbox.Limits{Total: postbox.Limit{PerSecond: 0.5}}})
	require.NoError(t, storeSettings(t.Context(), b.Admin, admin.Outbox("outbox"), admin.Settings{Concurrency: 8}))
	outbox := shown("settings?outbox=outbox")
	require.Equal(t, []string{"", "0.5, as configured", "no limit"}, []string{outbox["concurrency"], outbox["per-second"], outbox["max-concurrent"]})
	b.Beat("host 43", spool.Heartbeat{InFlight: map[string]int{}, Limits: postbox.Limits{Total: postbox.Limit{PerSecond: 2}}})
	require.Equal(t, "0.5 or more, as configured", shown("settings?outbox=outbox")["per-second"])

	for file, defaults := range map[string][]string{
		"../tuning.go":            {"Default to 5 ms and 1 s.", "Defaults to 2000, for"},
		"../forwarder/config.go":  {"Defaults to 64.", "Defaults to 10 attempts", "Defaults to 30 days."},
		"../queue/config.go":      {"Defaults to 16, for batches to 1.", "Defaults to 15 attempts", "Defaults to not at all."},
		"../inboxstore/config.go": {"Defaults to 30 days; negative"},
	} {
		content, err := os.ReadFile(file) //nolint:gosec // a file of the project
		require.NoError(t, err)
		for _, text := range defaults {
			require.Contains(t, strings.Join(strings.Fields(strings.ReplaceAll(string(content), "//", "")), " "), text, file)
		}
	}
}

func TestSettings_that_another_operator_has_changed_meanwhile_are_not_lost(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
	form := fields(b.page("settings?outbox=outbox"))
	require.NoError(t, storeSettings(t.Context(), b.Admin, admin.Outbox("outbox"), admin.Settings{Concurrency: 8}))
	form.Set("page-size", "100")
	refused := b.post("settings-run?outbox=outbox", form)
	require.Equal(t, http.StatusConflict, refused.status)
	require.Contains(t, refused.text(), "another operator has changed the settings")
	require.Equal(t, admin.Settings{Concurrency: 8}, b.settings())
}

func TestSettings_stored_from_two_forms_at_once_are_not_lost(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
	for round := range 5 {
		before := b.settings()
		form := fields(b.page("settings?outbox=outbox"))
		var users sync.WaitGroup
		var status [2]int
		for i, field := range []string{"attempts", "concurrency"} {
			mine := maps.Clone(form)
			mine.Set(field, strconv.Itoa(round+10))
			users.Go(func() { status[i] = b.post("settings-run?outbox=outbox", mine).status })
		}
		users.Wait()
		require.ElementsMatch(t, []int{http.StatusSeeOther, http.StatusConflict}, status[:])
		after := b.settings()
		require.NotEqual(t, before.Attempts != after.Attempts, before.Concurrency != after.Concurrency, "one of the two")
	}
}

// A form lacks the fields of settings that were added since, such as one that was open while the
// dashboard was updated.
func TestSettings_without_a_field_in_the_form_are_kept(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
	want := admin.Settings{Attempts: 3, PerSecond: 2.5, MaxConcurrent: 40, History: time.Hour}
	require.NoError(t, storeSettings(t.Context(), b.Admin, admin.Outbox("outbox"), want))
	form := fields(b.page("settings?outbox=outbox"))
	form.Del("per-second")
	form.Del("max-concurrent")
	form.Set("concurrency", "4")
	b.do("settings-run?outbox=outbox", form)
	want.Concurrency = 4
	require.Equal(t, want, b.settings())
}

func TestSettings_with_mistakes_change_nothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
	form := fields(b.page("settings?outbox=outbox"))
	for field, values := range map[string][]string{
		"page-size": {"0", "-1", "x", "10001", "unlimited"}, "concurrency": {"99999"}, "poll-max": {"1", "1ns", "2h", "off"},
		"attempts": {"-1", "many", "none"}, "per-second": {"0", "-1", "NaN", "Inf", "x", "1e9", "1e-9"}, "max-concurrent": {"0", "0.5", "2147483648", "unlimited"}, "history": {"1ms", "-7d", "36501d", "99999999999999999999d", "forever"}, "retention": {"0s", "off"},
	} {
		for _, value := range values {
			wrong := url.Values{}
			for name := range form {
				wrong.Set(name, form.Get(name))
			}
			wrong.Set(field, value)
			a := b.post("settings-run?outbox=outbox", wrong)
			require.Equal(t, http.StatusBadRequest, a.status, "%s %s: %s", field, value, a.text())
			require.Contains(t, a.text(), field+": ", "it has the name of the field")
			require.NotContains(t, a.text(), "or 0 for", "a field takes no 0")
		}
	}
	require.Zero(t, b.settings())
	require.Equal(t, http.StatusNotFound, b.get("settings?outbox=nope").status)
	require.Equal(t, http.StatusNotFound, b.post("settings-run?outbox=nope", form).status)
}

// storeSettings stores settings in place of those that are stored.
func storeSettings(ctx context.Context, a *admin.Admin, target admin.Target, settings admin.Settings) error {
	_, err := a.ChangeSettings(ctx, target, func(stored *admin.Settings) error {
		*stored = settings
		return nil
	})
	return err
}
