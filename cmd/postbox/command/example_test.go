package command_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
)

// A program of your own chooses its driver, and may add commands to the tree.
func ExampleNew() {
	folder, err := os.MkdirTemp("", "shop")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()

	postbox := command.New(command.Options{
		Open: func(p command.OpenParams) (*sql.DB, error) { return sql.Open("sqlite", p.DSN) },
	})
	postbox.SetArgs([]string{"migrate", "up", "--dsn", filepath.Join(folder, "shop.db")})
	fmt.Println("exit code", command.Execute(context.Background(), postbox))
	// Output:
	// 1 migration run, from version 0 to version 1.
	// exit code 0
}
