package dialect

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// lookAlikes are servers that speak the protocol of another one, by what their version contains.
// Postbox needs things of the original that they lack, such as ids in the order of insertion, and
// some of them would lack it silently.
var lookAlikes = []struct{ mark, name string }{
	{"-YB-", "YugabyteDB"},
	{"CockroachDB", "CockroachDB"},
	{"Redshift", "Amazon Redshift"},
	{"Greenplum", "Greenplum"},
	{"Materialize", "Materialize"},
	{"RisingWave", "RisingWave"},
	{"QuestDB", "QuestDB"},
	{"CrateDB", "CrateDB"},
	{"openGauss", "openGauss"},
	{"TiDB", "TiDB"},
	{"Vitess", "Vitess"},
	{"OceanBase", "OceanBase"},
}

// oldest are the oldest versions that can be used.
var oldest = map[string][2]int{"PostgreSQL": {13, 0}, "MySQL": {8, 0}, "MariaDB": {10, 6}, "SQLite": {3, 43}}

// product returns the name of the product whose version this is, and the text that begins with its
// number.
func product(kind Kind, version string) (name, number string) {
	switch {
	case kind == PostgreSQL:
		return "PostgreSQL", strings.TrimPrefix(version, "PostgreSQL ")
	case kind == MySQL && strings.Contains(version, "MariaDB"):
		return "MariaDB", strings.TrimPrefix(version, "5.5.5-") // which some proxies put before it
	case kind == MySQL:
		return "MySQL", version
	default:
		return "SQLite", version
	}
}

// checkVersion returns [ErrUnfit] for a server that only looks like one of the kind, or is too old.
func (s *Statements) checkVersion(kind Kind, version string) error {
	if s.AnyServer {
		return nil
	}
	const anyway = " (AnyServer of postbox.Database tries it nevertheless)"
	for _, other := range lookAlikes {
		if strings.Contains(version, other.mark) {
			return fmt.Errorf("%w: it is %s, which speaks the protocol of %s and lacks what Postbox needs of it: see docs/databases.md#servers-that-look-alike%s",
				ErrUnfit, other.name, s.Kind.Can().Name, anyway)
		}
	}
	if kind == anyKind {
		return nil
	}
	name, number := product(kind, version)
	major, rest, _ := strings.Cut(number, ".")
	first, err := strconv.Atoi(digits(major))
	if err != nil {
		return nil //nolint:nilerr // a version that is written otherwise is none that is known to be too old
	}
	second, _ := strconv.Atoi(digits(rest))
	if least := oldest[name]; first < least[0] || first == least[0] && second < least[1] {
		return fmt.Errorf("%w: it is %s %d.%d, and Postbox needs %d.%d or later%s", ErrUnfit, name, first, second, least[0], least[1], anyway)
	}
	return nil
}

// digits returns the digits with which a text begins.
func digits(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return text
	}
	return text[:end]
}

const (
	isGalera = `SELECT COUNT(*) FROM information_schema.session_variables WHERE variable_name = 'WSREP_ON' AND variable_value = 'ON'`
	// someArgument makes a driver that prepares statements prepare one, which preparedBefore
	// counts.
	someArgument   = `SELECT ?`
	preparedBefore = `SHOW SESSION STATUS LIKE 'Com_stmt_prepare'`
)

// checkGalera returns [ErrUnfit] for sessions of a Galera cluster in which the driver prepares
// statements. If another node aborts the transaction of such a session at the wrong moment, MariaDB
// does not report it, and what follows is committed by itself: half of a transaction. A driver that
// puts arguments into the text has no such moments.
func (s *Statements) checkGalera(ctx context.Context, db *sql.DB, version string) error {
	if s.Kind != MySQL || !strings.Contains(version, "MariaDB") {
		return nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return HideAddress(err)
	}
	defer func() { _ = conn.Close() }()
	var galera, one int
	if err := conn.QueryRowContext(ctx, isGalera).Scan(&galera); err != nil || galera == 0 {
		return err
	}
	before, err := prepared(ctx, conn)
	if err == nil {
		err = conn.QueryRowContext(ctx, someArgument, 1).Scan(&one)
	}
	if err != nil {
		return err
	}
	if after, err := prepared(ctx, conn); err != nil || after == before {
		return err
	}
	return s.CheckReason("galera")
}

// prepared is how many statements the session has prepared: also those that Postbox keeps prepared,
// which do no harm.
func prepared(ctx context.Context, conn *sql.Conn) (count int, err error) {
	var name string
	err = conn.QueryRowContext(ctx, preparedBefore).Scan(&name, &count)
	return count, err
}
