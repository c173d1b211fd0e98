package command

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	postbox "github.com/postbox-go/watermill-postbox"
)

// address is where the database is.
type address struct {
	dialect postbox.Dialect
	dsn     string // as the driver takes it
	// creating is dsn for a file of SQLite that is to be made.
	creating string
	file     string // of SQLite; empty for servers, and for a database in memory
	// place is where the database is, for people, without user and password. It is empty if only
	// the driver knows.
	place string
	// secrets are the parts that must not be printed.
	secrets []string
	// opaque: only the driver knows the form, so that any part may be a secret.
	opaque bool
}

var (
	errNoURL     = errors.New("the address of the database is not a URL: check its port, and write %xx for the special characters of a user and a password")
	errNoDialect = errors.New("the address of the database does not say which kind of database it is: " +
		"begin it with postgres://, mysql:// or sqlite://, or set --dialect")
	errUserColon = errors.New("the address of the database has a user with a colon, which the driver for MySQL does not take")
)

// parseAddress reads an address. Its errors do not quote it, since it may have a password anywhere.
func parseAddress(text string, kind postbox.Dialect) (address, error) {
	scheme, rest, hasScheme := strings.Cut(text, ":")
	found := address{dsn: text}
	switch scheme {
	case "postgres", "postgresql":
		found.dialect = postbox.PostgreSQL
	case "mysql", "mariadb":
		found.dialect = postbox.MySQL
	case "sqlite", "sqlite3", "file":
		found.dialect = postbox.SQLite
	}
	isURL := strings.HasPrefix(rest, "//") || found.dialect == postbox.SQLite
	switch {
	case found.dialect == "" || !hasScheme, !isURL && kind != "": // such as mysql:password@tcp(host)/shop, with a user of that name
		return withoutScheme(text, kind)
	case !isURL:
		return address{}, errNoURL
	case kind != "" && kind != found.dialect:
		return address{}, fmt.Errorf("the dialect is %s, and the address of the database begins with %s:", kind, scheme)
	case found.dialect == postbox.SQLite && scheme == "file":
		return sqliteAddress(text, rest), nil
	case found.dialect == postbox.SQLite:
		path := strings.TrimPrefix(rest, "//")
		return sqliteAddress(sqliteURI(path), path), nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" && found.dialect == postbox.MySQL {
		return address{}, errNoURL
	}
	found.secrets = secretsOf(text, u)
	if !strings.Contains(u.Path, "@") { // else a part of a password may be taken for the host
		found.place = strings.TrimSuffix(u.Host+u.EscapedPath(), "/")
	}
	if found.dialect == postbox.MySQL {
		found.dsn, err = mysqlDSN(u)
	}
	return found, err
}

// withoutScheme reads an address in a form that only the driver knows, or the path of a file.
func withoutScheme(text string, kind postbox.Dialect) (address, error) {
	switch kind {
	case postbox.PostgreSQL, postbox.MySQL:
		return address{dialect: kind, dsn: text, secrets: secretsIn(text), opaque: true}, nil
	case postbox.SQLite:
		return sqliteAddress(sqliteURI(text), text), nil
	default:
		path, _, _ := strings.Cut(text, "?")
		if strings.ContainsAny(path, "@=") || strings.Contains(path, "://") { // it may be that of a server, with a password
			return address{}, errNoDialect
		}
		return sqliteAddress(sqliteURI(text), text), nil
	}
}

// sqliteNeeds are the options that Postbox needs: see docs/databases.md. A file keeps its journal
// mode, so that is only for one that is made: a command must not change a file of something else,
// and must be able to look at one that it cannot write to.
var sqliteNeeds = []struct {
	name, option string
	creating     bool
}{
	{"busy_timeout", "_pragma=busy_timeout(10000)", false}, {"journal_mode", "_pragma=journal_mode(WAL)", true}, {"_txlock", "_txlock=immediate", false},
}

// sqliteAddress adds the options that Postbox needs, unless the user has set them.
func sqliteAddress(dsn, path string) address {
	creating := sqliteDSN(dsn, true)
	dsn = sqliteDSN(dsn, false)
	path, options, _ := strings.Cut(path, "?")
	found := address{dialect: postbox.SQLite, dsn: dsn, creating: creating, file: path, place: "file " + strconv.Quote(path)}
	if path == ":memory:" || strings.Contains(options, "mode=memory") {
		found.file, found.place = "", "a database in memory"
	}
	return found
}

func sqliteDSN(dsn string, creating bool) string {
	for _, need := range sqliteNeeds {
		if _, options, _ := strings.Cut(dsn, "?"); strings.Contains(options, need.name) || need.creating && !creating {
			continue
		}
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		dsn += separator + need.option
	}
	return dsn
}

// sqliteURI writes a path as the driver takes it together with options.
func sqliteURI(path string) string {
	path, options, hasOptions := strings.Cut(path, "?")
	uri := "file:" + strings.NewReplacer("%", "%25", "#", "%23").Replace(path)
	if hasOptions {
		uri += "?" + options
	}
	return uri
}

// mysqlDSN writes a URL in the form of go-sql-driver/mysql, which takes user and password as they
// are.
func mysqlDSN(u *url.URL) (string, error) {
	host := u.Host
	if u.Port() == "" {
		host += ":3306"
	}
	credentials := ""
	if u.User != nil {
		password, _ := u.User.Password()
		if strings.Contains(u.User.Username(), ":") {
			return "", errUserColon
		}
		credentials = u.User.Username() + ":" + password + "@"
	}
	dsn := credentials + "tcp(" + host + ")/" + strings.TrimPrefix(u.EscapedPath(), "/")
	if u.RawQuery != "" {
		dsn += "?" + u.RawQuery
	}
	return dsn, nil
}

// secretsOf returns what must not be printed of a URL: the password as it is written, and as it is
// meant.
func secretsOf(text string, u *url.URL) []string {
	secrets := secretsIn(text)
	if _, rest, ok := strings.Cut(text, "://"); ok {
		secrets = append(secrets, secretsIn(rest)...)
	}
	if password, ok := u.User.Password(); ok && password != "" {
		_, written, _ := strings.Cut(u.User.String(), ":")
		secrets = append(secrets, password, written)
	}
	for name, values := range u.Query() {
		if strings.Contains(name, "password") {
			secrets = append(secrets, values...)
		}
	}
	return secrets
}

var (
	keywordPassword = regexp.MustCompile(`password\s*=\s*('[^']*'|\S+)`)
	driverPassword  = regexp.MustCompile(`^[^:@/]*:(.*)@`)
)

// secretsIn looks for a password in the forms key=value of libpq and user:password@ of
// go-sql-driver/mysql.
func secretsIn(text string) []string {
	secrets := []string{text}
	for _, form := range []*regexp.Regexp{keywordPassword, driverPassword} {
		if found := form.FindStringSubmatch(text); found != nil && found[1] != "" {
			secrets = append(secrets, found[1], strings.Trim(found[1], "'"))
		}
	}
	return secrets
}

// hide takes the secrets out of a text.
func (a address) hide(text string) string {
	for _, secret := range a.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

// toBeMade says whether there is no file of SQLite yet. An empty one has no journal mode.
func (a address) toBeMade() bool {
	if a.dialect != postbox.SQLite || a.file == "" {
		return false
	}
	info, err := os.Stat(a.file)
	return errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0
}
