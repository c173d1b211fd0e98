package dialect

import (
	"database/sql/driver"
	"strconv"
	"strings"
)

// nullInt64Array is a bigint[] with NULLs, for which lib/pq has no fast type.
type nullInt64Array []*int64

// Value writes the array in PostgreSQL's text form, which every driver passes on unchanged.
func (a nullInt64Array) Value() (driver.Value, error) {
	var out strings.Builder
	out.WriteByte('{')
	for i, n := range a {
		if i > 0 {
			out.WriteByte(',')
		}
		if n == nil {
			out.WriteString("NULL")
		} else {
			out.WriteString(strconv.FormatInt(*n, 10))
		}
	}
	out.WriteByte('}')
	return out.String(), nil
}
