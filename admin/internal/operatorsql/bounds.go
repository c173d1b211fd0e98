package operatorsql

import (
	"encoding/json"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// bounds are numbers with names, as one argument.
type bounds map[string]int64

// bound is one of the bounds that a statement has.
func bound(k dialect.Kind, name string) string {
	switch k {
	case dialect.PostgreSQL:
		return `(SELECT (:bounds::json ->> '` + name + `')::bigint)` // once, not for each row
	case dialect.SQLite:
		return `(:bounds ->> '` + name + `')`
	default:
		return `CAST(JSON_VALUE(CAST(:bounds AS CHAR), '$.` + name + `') AS SIGNED)` // MySQL takes no argument as a text
	}
}

// list writes them.
func (b bounds) list() string {
	text, err := json.Marshal(b)
	if err != nil {
		panic("operatorsql: numbers have no JSON: " + err.Error())
	}
	return string(text)
}
