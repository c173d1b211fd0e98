package pgtail

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5/pgconn"
)

// Config says how the log is read.
type Config struct {
	// DSN is the data source name of the database, for pgx, as a URL or as words. It must lead to
	// the primary server itself, not to a pooler, and its role needs the attribute REPLICATION, but
	// no right on any table. Required.
	DSN string
	// Publication is the name of the publication that [Setup] makes. Tables of several schemas can
	// share one. At most 63 lower-case letters, digits and underscores. Defaults to "postbox_tail".
	Publication string
	// MaxRetained is how many bytes of log the server may keep for this process. It keeps the log
	// from the start of the oldest transaction on that is open. Above the limit, the process gives
	// its slot up, and tries again a minute later. Meanwhile it polls. Negative: no limit. Defaults
	// to 1 GiB.
	MaxRetained int64
	// Required makes Run of the forwarders end with an error if the log cannot be read for a reason
	// that waiting does not help against, such as wal_level. By default they log the reason once,
	// and poll.
	Required bool
}

const (
	defaultPublication = "postbox_tail"
	defaultMaxRetained = 1 << 30
)

func (c *Config) setDefaults() {
	c.Publication = cmp.Or(c.Publication, defaultPublication)
	c.MaxRetained = cmp.Or(c.MaxRetained, defaultMaxRetained)
}

// validPublication matches names that need no quoting.
var validPublication = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

func checkPublication(name string) error {
	if !validPublication.MatchString(name) {
		return fmt.Errorf("Publication %.70q: use at most 63 lower-case letters, digits and underscores, not starting with a digit", name)
	}
	return nil
}

// validate returns all mistakes, and the parsed DSN.
func (c Config) validate() (*pgconn.Config, error) {
	err := checkPublication(c.Publication)
	if c.DSN == "" {
		return nil, errors.Join(err, errors.New("DSN is missing: give the address of the database, such as postgres://role@host:5432/database"))
	}
	parsed, dsn := pgconn.ParseConfig(c.DSN)
	if dsn != nil {
		err = errors.Join(err, errors.New("DSN cannot be read: use a URL such as postgres://role@host:5432/database")) // the error of pgx may show a part of a password
	}
	return parsed, err
}
