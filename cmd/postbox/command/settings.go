package command

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	postbox "github.com/postbox-go/watermill-postbox"
)

// The settings of the connection: a flag, a variable of the environment, or a line of the
// configuration file.
const (
	dsnVariable        = "POSTBOX_DSN"
	dialectVariable    = "POSTBOX_DIALECT"
	schemaVariable     = "POSTBOX_SCHEMA"
	prefixVariable     = "POSTBOX_PREFIX"
	deploymentVariable = "POSTBOX_DEPLOYMENT"
	actorVariable      = "POSTBOX_ACTOR"
	logDSNVariable     = "POSTBOX_LOG_DSN"
)

// settings say which database and which tables a command works on.
type settings struct {
	flags   *pflag.FlagSet
	config  string
	dsn     []string
	dialect string
	schema  string
	prefix  string
	deploy  string
	actor   string
	logDSN  string // the commands of the log have its flag
}

func (s *settings) addTo(flags *pflag.FlagSet) {
	s.flags = flags
	flags.StringArrayVar(&s.dsn, "dsn", nil, "address of the database; more than once for several (POSTBOX_DSN)")
	flags.StringVar(&s.config, "config", "", "file with the settings of the connection, as NAME=VALUE")
	flags.StringVar(&s.dialect, "dialect", "", "kind of database: postgresql, mysql or sqlite; known from the address if it is a URL (POSTBOX_DIALECT)")
	flags.StringVar(&s.schema, "schema", "", "PostgreSQL schema of the tables (POSTBOX_SCHEMA)")
	flags.StringVar(&s.prefix, "prefix", "", `beginning of the names of the tables, "postbox_" unless set (POSTBOX_PREFIX)`)
	flags.StringVar(&s.deploy, "deployment", "", "name of the deployment that the tables belong to (POSTBOX_DEPLOYMENT)")
	flags.StringVar(&s.actor, "actor", "", "who acts, for the audit log; the user and the host unless set (POSTBOX_ACTOR)")
}

// connection is what the settings say, from all their sources.
type connection struct {
	address  address
	database postbox.Database // without DB
	actor    string
	logDSN   string // of the role that reads the log; may be empty
}

// resolve reads the settings of a command that works on one database. Without an address there is
// only a dialect, which is enough for a command that needs no connection.
func (s *settings) resolve(lookup func(string) (string, bool)) (connection, error) {
	found, err := s.resolveAll(lookup)
	if err != nil {
		return connection{}, err
	}
	if len(found) > 1 {
		return connection{}, usagef("%d databases are named, and this command works on one", len(found))
	}
	return found[0], nil
}

// resolveAll reads the settings of a command that works on each database that is named.
func (s *settings) resolveAll(lookup func(string) (string, bool)) ([]connection, error) {
	file, addresses, err := readConfig(s.config)
	if err != nil {
		return nil, usage(err)
	}
	if s.flags.Changed("dsn") {
		addresses = s.dsn
	} else if found, ok := lookup(dsnVariable); ok && found != "" {
		addresses = []string{found}
	}
	if len(addresses) == 0 {
		addresses = []string{""}
	}
	var all []connection
	for _, dsn := range addresses {
		if dsn == "" && len(addresses) > 1 {
			return nil, usagef("one of %d addresses is empty", len(addresses))
		}
		found, err := s.connection(dsn, file, lookup)
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}

// connection reads what an address and the other settings say.
func (s *settings) connection(dsn string, file map[string]string, lookup func(string) (string, bool)) (_ connection, err error) {
	value := func(flag, given, variable string) string {
		if s.flags.Changed(flag) {
			return given
		}
		if found, ok := lookup(variable); ok && found != "" {
			return found
		}
		return file[variable]
	}
	kind := postbox.Dialect(value("dialect", s.dialect, dialectVariable))
	switch kind {
	case "", postbox.PostgreSQL, postbox.MySQL, postbox.SQLite:
	default:
		return connection{}, usagef("dialect: %.30q is not one of %s, %s and %s", kind, postbox.PostgreSQL, postbox.MySQL, postbox.SQLite)
	}
	found := connection{address: address{dialect: kind}, actor: value("actor", s.actor, actorVariable)}
	if dsn != "" {
		if found.address, err = parseAddress(dsn, kind); err != nil {
			return connection{}, usage(err)
		}
	}
	found.database = postbox.Database{
		Dialect: found.address.dialect, Schema: value("schema", s.schema, schemaVariable),
		Prefix: value("prefix", s.prefix, prefixVariable), Deployment: value("deployment", s.deploy, deploymentVariable),
	}
	if found.logDSN = s.logDSN; found.logDSN == "" {
		found.logDSN = value("", "", logDSNVariable)
	}
	return found, nil
}

// readConfig reads the lines NAME=VALUE of a file. There may be several addresses. Errors never
// have a value in them, which may be a password.
func readConfig(path string) (values map[string]string, addresses []string, err error) {
	if path == "" {
		return nil, nil, nil
	}
	file, err := os.Open(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer func() { _ = file.Close() }()
	values = map[string]string{}
	scanner := bufio.NewScanner(file)
	for n := 1; scanner.Scan(); n++ {
		line := strings.TrimSpace(scanner.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, nil, fmt.Errorf("configuration %q, line %d: write NAME=VALUE", path, n)
		}
		name = strings.TrimSpace(name)
		switch value = unquoted(strings.TrimSpace(value)); name {
		case dsnVariable:
			addresses = append(addresses, value)
		case dialectVariable, schemaVariable, prefixVariable, deploymentVariable, actorVariable, logDSNVariable:
			values[name] = value
		default:
			return nil, nil, fmt.Errorf("configuration %q, line %d: there is no setting of this name", path, n)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read the configuration %q", path), err)
	}
	return values, addresses, nil
}

// unquoted takes a pair of quotes off, as other programs that read such files do.
func unquoted(value string) string {
	for _, quote := range []string{`"`, `'`} {
		if len(value) >= 2 && strings.HasPrefix(value, quote) && strings.HasSuffix(value, quote) {
			return value[1 : len(value)-1]
		}
	}
	return value
}
