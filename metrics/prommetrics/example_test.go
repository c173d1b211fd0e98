package prommetrics_test

import (
	"database/sql"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	_ "modernc.org/sqlite"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/metrics/prommetrics"
)

func Example() {
	db, err := sql.Open("sqlite", "file:orders.db?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	database := postbox.Database{DB: db, Dialect: postbox.SQLite}

	recorder, err := prommetrics.New(database, prommetrics.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	prometheus.MustRegister(recorder)
	database.Metrics = recorder

	_, err = forwarder.NewPublisher(database, forwarder.PublisherConfig{}, nil) // reports what it stores
	fmt.Println(err)
	// Output: <nil>
}
