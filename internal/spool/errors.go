package spool

import (
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

func LogText(err error) string {
	if err == nil {
		return ""
	}
	return dialect.HideAddress(err).Error()
}

// wrap says what was done, and what to do where the tables are missing.
func Wrap(what string, err error) error {
	if dialect.LacksTable(err) {
		return fmt.Errorf("%s: the tables are not there, call postbox.Migrate first: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
