package dialect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrDeployment is returned if the tables belong to another deployment than the configuration says.
var ErrDeployment = errors.New("the tables belong to another deployment")

// maxDeployment is the maximum length in bytes of the name of a deployment, on every database.
const maxDeployment = 255

func checkDeploymentName(name string) error {
	if len(name) > maxDeployment || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return fmt.Errorf("deployment %.60q: use at most %d bytes of UTF-8 text without NUL", name, maxDeployment)
	}
	return nil
}

// CheckDeployment returns [ErrDeployment] unless the tables belong to the deployment that the
// configuration names.
func (s *Statements) CheckDeployment(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) error {
	var stored string
	if err := db.QueryRowContext(ctx, s.Deployment).Scan(&stored); err != nil {
		return fmt.Errorf("read the deployment of tables %s: %w", s.Names.Table("*"), err)
	}
	configured := s.Names.Deployment
	switch stored {
	case configured:
		return nil
	case "":
		return fmt.Errorf("%w: tables %s have no name and the configuration names %q: call postbox.Migrate with this name once, "+
			"or, if another tool migrates the tables, insert the name as docs/security.md says",
			ErrDeployment, s.Names.Table("*"), configured)
	default:
		return fmt.Errorf("%w: tables %s are those of %q and the configuration names %q: if this is a copy of that database, it must not send the messages that wait there; "+
			"docs/security.md says how to take a copy over, and otherwise set Deployment to %q",
			ErrDeployment, s.Names.Table("*"), stored, configured, stored)
	}
}
