package spool

import (
	"fmt"
	"os"
)

// ProcessName tells processes apart for people who read failures and leases: host and process id.
func ProcessName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}
