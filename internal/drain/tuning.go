package drain

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Defaults of [postbox.Tuning].
const (
	DefaultPageSize = 2000
	DefaultPollMin  = 5 * time.Millisecond
	DefaultPollMax  = time.Second

	defaultMaxBytesInFlight = 64 << 20
	defaultLease            = 15 * time.Second
	defaultProbeMin         = 100 * time.Millisecond
	defaultProbeMax         = 30 * time.Second
)

// minLease is the shortest lease that a process can be expected to renew in time.
const minLease = time.Second

// SetDefaults fills in the settings that are zero.
func SetDefaults(t *postbox.Tuning) {
	t.PageSize = cmp.Or(t.PageSize, DefaultPageSize)
	t.MaxBytesInFlight = cmp.Or(t.MaxBytesInFlight, defaultMaxBytesInFlight)
	t.PollMin = cmp.Or(t.PollMin, DefaultPollMin)
	t.PollMax = cmp.Or(t.PollMax, max(DefaultPollMax, t.PollMin))
	t.Lease = cmp.Or(t.Lease, defaultLease)
	t.ProbeMin = cmp.Or(t.ProbeMin, defaultProbeMin)
	t.ProbeMax = cmp.Or(t.ProbeMax, max(defaultProbeMax, t.ProbeMin))
}

// Valid returns all problems of the settings that a forwarder and a queue have in common, for a
// database of that kind.
func Valid(t postbox.Tuning, concurrency int, retry postbox.RetryProfile, kind dialect.Kind) error {
	err := errors.Join(
		Positive("Concurrency", concurrency),
		Positive("PageSize", t.PageSize),
		Positive("MaxBytesInFlight", t.MaxBytesInFlight),
		InOrder("Poll", t.PollMin, t.PollMax),
		InOrder("Probe", t.ProbeMin, t.ProbeMax),
	)
	if concurrency > spool.MaxConcurrency {
		err = errors.Join(err, fmt.Errorf("Concurrency: %d is more than %d: each needs a goroutine, and in a transaction a connection", concurrency, spool.MaxConcurrency))
	}
	if t.Lease < minLease {
		err = errors.Join(err, fmt.Errorf("Lease: %s is less than a second, and the lease would run out whenever the database is slow for that long", t.Lease))
	}
	if invalid := retries.Validate(retry); invalid != nil {
		err = errors.Join(err, fmt.Errorf("Retry: %w", invalid))
	}
	if t.ListenDSN != "" && !kind.Can().Listens {
		err = errors.Join(err, fmt.Errorf("ListenDSN: %s has no LISTEN: leave ListenDSN empty, since only PostgreSQL has it", kind))
	}
	return err
}

// Positive returns an error unless a setting is positive.
func Positive[N int | time.Duration](name string, n N) error {
	if n > 0 {
		return nil
	}
	return fmt.Errorf("%s: %v is not positive", name, n)
}

// InOrder returns an error unless the settings nameMin and nameMax are positive, and the first is
// not above the second.
func InOrder(name string, least, most time.Duration) error {
	if least <= 0 {
		return fmt.Errorf("%sMin: %s is not positive", name, least)
	}
	if least > most {
		return fmt.Errorf("%sMin and %sMax: %s is more than %s", name, name, least, most)
	}
	return nil
}

// Tuned returns the engine's form of these settings.
func Tuned(t postbox.Tuning, concurrency int, retry postbox.RetryProfile) Config {
	process := spool.ProcessName()
	return Config{
		Identity: Identity{Holder: process + " " + postbox.NewMessageID(), Process: process, Work: spool.Program()},
		Amounts:  Amounts{PageSize: t.PageSize, InlineBytes: InlineBytes, MaxBytes: t.MaxBytesInFlight, Workers: concurrency},
		Times:    Times{PollMin: t.PollMin, PollMax: t.PollMax, Lease: t.Lease, Renew: t.Lease / leaseRenewals},
		Retry:    retry,
	}
}
