package spool

import (
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// LogText returns the text of an error for the log, without the address of the database; empty for
// nil.
func LogText(err error) string {
	if err == nil {
		return ""
	}
	return dialect.HideAddress(err).Error()
}

// Wrap adds to an error what was done, and what to do if the tables are missing.
func Wrap(what string, err error) error {
	if dialect.LacksTable(err) {
		return fmt.Errorf("%s: the tables are missing or of another version, call postbox.Migrate first: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
