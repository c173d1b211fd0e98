// Postbox is the command line of the library: it migrates the tables, shows outboxes, queues and
// dead letters, and acts on them. It has the drivers lib/pq, go-sql-driver/mysql and
// modernc.org/sqlite in it. For a program with another driver, see the package command. docs/cli.md
// describes each command.
package main

import (
	"context"
	"os"
	"runtime/debug"

	_ "github.com/go-sql-driver/mysql" // driver "mysql"
	_ "github.com/lib/pq"              // driver "postgres"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
)

func main() {
	os.Exit(command.Execute(context.Background(), command.New(command.Options{Version: version()})))
}

// version is the module's version, which go install writes into the program.
func version() string {
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" {
		return build.Main.Version
	}
	return "unknown"
}
