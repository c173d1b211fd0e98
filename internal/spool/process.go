package spool

import (
	"fmt"
	"os"
)

// ProcessName returns host and process id, so that people who read failures and leases can tell processes apart.
func ProcessName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}
