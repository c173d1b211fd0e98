package command

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	postbox "github.com/postbox-go/watermill-postbox"
)

// address is where the database is.
type address struct {
	dialect postbox.Dialect
	dsn     string // as the driver takes it
	file    string // of SQLite; empty for servers, and for a database in memory
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

// sqliteNeeds are the options without which Postbox refuses a file: see docs/databases.md.
var sqliteNeeds = []struct{ name, option string }{
	{"busy_timeout", "_pragma=busy_timeout(10000)"}, {"journal_mode", "_pragma=journal_mode(WAL)"}, {"_txlock", "_txlock=immediate"},
}

// sqliteAddress adds the options that Postbox needs, unless the user has set them.
func sqliteAddress(dsn, path string) address {
	for _, need := range sqliteNeeds {
		if strings.Contains(dsn, need.name) {
			continue
		}
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		dsn += separator + need.option
	}
	path, options, _ := strings.Cut(path, "?")
	if path == ":memory:" || strings.Contains(options, "mode=memory") {
		path = ""
	}
	return address{dialect: postbox.SQLite, dsn: dsn, file: path}
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

// mysqlDSN writes a URL in the form of go-sql-driver/mysql, which takes user and password as they are.
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

// secretsOf returns what must not be printed of a URL: the password as it is written, and as it is meant.
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

// secretsIn looks for a password in the forms key=value of libpq and user:password@ of go-sql-driver/mysql.
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
