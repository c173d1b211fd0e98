package load

import (
	"database/sql"

	"github.com/prometheus/client_golang/prometheus"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/metrics/prommetrics"
)

// Describe returns the description of a database on PostgreSQL.
type Describe func(db *sql.DB) (postbox.Database, error)

// Unmeasured describes one without metrics.
func Unmeasured(db *sql.DB) (postbox.Database, error) {
	return postbox.Database{DB: db, Dialect: postbox.PostgreSQL}, nil
}

// Measured describes one whose metrics go to Prometheus. No scrape takes place.
func Measured(db *sql.DB) (postbox.Database, error) {
	database := postbox.Database{DB: db, Dialect: postbox.PostgreSQL}
	recorder, err := prommetrics.New(database, prommetrics.Config{})
	if err != nil {
		return database, err
	}
	database.Metrics = recorder
	return database, prometheus.NewRegistry().Register(recorder)
}
