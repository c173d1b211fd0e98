package spool

import (
	"fmt"
	"os"
	"os/user"
	"runtime/debug"
)

// Program returns the import path of the program, so that people can tell services apart.
func Program() string {
	if build, ok := debug.ReadBuildInfo(); ok && build.Path != "" {
		return build.Path
	}
	return "unknown program"
}

// ProcessName returns host and process id, so that people who read failures and leases can tell
// processes apart.
func ProcessName() string { return fmt.Sprintf("%s:%d", HostName(), os.Getpid()) }

// UserName returns the user and the host of this process, for people. A process in a container may
// have no user with a name.
func UserName() string {
	name := "unknown user"
	if current, err := user.Current(); err == nil {
		name = current.Username
	}
	return name + "@" + HostName()
}

// HostName returns the name of the machine, for people.
func HostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown-host"
	}
	return host
}
