package otelmetrics_test

import (
	"database/sql"
	"fmt"

	_ "modernc.org/sqlite"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/metrics/otelmetrics"
)

func Example() {
	db, err := sql.Open("sqlite", "file:orders.db?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	database := postbox.Database{DB: db, Dialect: postbox.SQLite}

	recorder, err := otelmetrics.New(database, otelmetrics.Config{}) // with the global provider
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = recorder.Close() }()
	database.Metrics = recorder

	_, err = forwarder.NewPublisher(database, forwarder.PublisherConfig{}, nil) // reports what it stores
	fmt.Println(err)
	// Output: <nil>
}
