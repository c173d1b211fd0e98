package minutes

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/metrics"
)

const (
	defaultRetention = 30 * 24 * time.Hour
	// timeout bounds how long the database may take for the rows of a minute.
	timeout = 10 * time.Second
	// rowsAtOnce is how many rows one statement writes.
	rowsAtOnce = 50
	// cleanEvery is how many minutes lie between two clean-ups. Each deletes an hour at a time, and
	// no more than a day: so old rows become fewer, and no clean-up takes long.
	cleanEvery, cleanStep, cleanSteps = 60, 60, 24
)

// Config is the configuration of a Recorder. The zero value has all defaults.
type Config struct {
	// Next gets each measurement too, for example a recorder of Prometheus. Defaults to none.
	Next metrics.Recorder
	// Retention is how long rows are kept. Defaults to 30 days.
	Retention time.Duration
}

// Recorder is a [metrics.SeriesRecorder] that writes what it gets once a minute. It is safe for
// concurrent use. Close it when everything that reports to it is closed.
type Recorder struct {
	next       metrics.SeriesRecorder // nil where there is none
	retention  time.Duration
	db         *sql.DB
	statements *dialect.Statements
	process    string
	logger     watermill.LoggerAdapter

	stop  func()
	ended chan struct{}

	mu     sync.Mutex // guards the map
	spools map[target]*minute

	// These belong to the goroutine that writes, and to Close when it has ended.
	last      int64 // the minute of the rows that were written last
	failing   bool
	toCleanUp int // minutes until the next clean-up
}

// target is an outbox or a queue.
type target struct{ kind, name string }

// New returns a recorder, which begins to write at the next full minute. An error means that the
// description of the database is not complete. The logger gets a line when the database stops
// taking rows; a nil logger logs nothing.
func New(database postbox.Database, config Config, logger watermill.LoggerAdapter) (*Recorder, error) {
	statements, err := spool.StatementsIn(database)
	if err != nil {
		return nil, fmt.Errorf("minutes: %w", err)
	}
	if config.Retention < 0 {
		return nil, fmt.Errorf("minutes: Retention: %s is negative", config.Retention)
	}
	if config.Retention == 0 {
		config.Retention = defaultRetention
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Recorder{
		retention: config.Retention, db: database.DB, statements: statements, logger: logger, next: seriesRecorder(config.Next),
		process: spool.ProcessName() + " " + rand.Text()[:8], stop: stop, ended: make(chan struct{}), spools: map[target]*minute{},
	}
	go r.write(ctx)
	return r, nil
}

// seriesRecorder makes series of a recorder that has none.
func seriesRecorder(next metrics.Recorder) metrics.SeriesRecorder {
	if given.Nil(next) {
		return nil
	}
	if already, ok := next.(metrics.SeriesRecorder); ok {
		return already
	}
	return onlyRecorder{next}
}

type onlyRecorder struct{ metrics.Recorder }

// Series returns a series that names its labels each time.
func (r onlyRecorder) Series(instrument *metrics.Instrument, labels ...string) metrics.Series {
	return instruments.SeriesFunc(func(value float64) { r.Record(instrument, value, labels...) })
}

// Record adds a measurement of this process.
func (r *Recorder) Record(instrument *metrics.Instrument, value float64, labels ...string) {
	if own := r.own(instrument, labels); own != nil {
		own(value)
	}
	if r.next != nil {
		r.next.Record(instrument, value, labels...)
	}
}

// Series returns a series for measurements of this process.
func (r *Recorder) Series(instrument *metrics.Instrument, labels ...string) metrics.Series {
	own := r.own(instrument, labels)
	switch {
	case r.next == nil && own == nil:
		return instruments.SeriesFunc(func(float64) {})
	case r.next == nil:
		return instruments.SeriesFunc(own)
	case own == nil:
		return r.next.Series(instrument, labels...)
	default:
		return both{instruments.SeriesFunc(own), r.next.Series(instrument, labels...)}
	}
}

type both struct{ own, next metrics.Series }

// Record records a value in both.
func (b both) Record(value float64) { b.own.Record(value); b.next.Record(value) }

// RecordAll records the values in both.
func (b both) RecordAll(values []float64) { b.own.RecordAll(values); b.next.RecordAll(values) }

// own returns what counts a measurement, nil for those that have no column.
func (r *Recorder) own(instrument *metrics.Instrument, labels []string) func(float64) {
	switch instrument {
	case instruments.Stored:
		return r.of(labels[0], labels[1]).stored.add
	case instruments.Ended:
		m := r.of(labels[0], labels[1])
		switch outcome := labels[3]; outcome {
		case "done":
			return m.done.add
		case "retry":
			return m.failed.add
		case "dead", "parked":
			return m.dead.add
		}
	case instruments.Latency:
		return r.of(labels[0], labels[1]).waits.add
	case instruments.Published, instruments.Handled:
		const kind, name = 4, 5
		return r.of(labels[kind], labels[name]).calls.add
	}
	return nil
}

func (r *Recorder) of(kind, name string) *minute {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := target{kind, name}
	if r.spools[key] == nil {
		r.spools[key] = &minute{waits: newTimes(), calls: newTimes()}
	}
	return r.spools[key]
}

// write writes rows after each full minute, until ctx ends.
func (r *Recorder) write(ctx context.Context) {
	defer close(r.ended)
	for {
		next := time.Now().Truncate(time.Minute).Add(time.Minute)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
		_ = r.flush(ctx, minuteOf(next)-1) // it has been logged
	}
}

// Close writes the numbers of the minute that has begun. It returns within ten seconds, also if the
// database does not answer, and leaves the database open. Call it once.
func (r *Recorder) Close() error {
	r.stop()
	<-r.ended
	return r.flush(context.Background(), max(minuteOf(time.Now()), r.last+1))
}

// minuteOf counts the minutes since 1970.
func minuteOf(t time.Time) int64 { return t.Unix() / int64(time.Minute/time.Second) }

// flush writes a row for each outbox and queue with numbers. After the clock was set back they wait
// until it is later than the last row.
func (r *Recorder) flush(ctx context.Context, minute int64) error {
	if minute <= r.last {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	rows := r.take()
	for len(rows) > 0 {
		part := rows[:min(len(rows), rowsAtOnce)]
		if err := r.insert(ctx, minute, part); err != nil {
			for _, row := range rows {
				row.giveBack()
			}
			if !r.failing && !errors.Is(err, context.Canceled) {
				r.logger.Error("The numbers of this minute could not be written: they are added to the next one", err, nil)
			}
			r.failing = true
			return fmt.Errorf("minutes: write what was measured: %w", err)
		}
		for _, row := range part {
			row.of.known = true
		}
		rows, r.last = rows[len(part):], minute
	}
	r.failing = false
	if r.toCleanUp--; r.toCleanUp < 0 {
		r.toCleanUp = cleanEvery
		if err := r.cleanUp(ctx, minute-int64(r.retention/time.Minute)); err != nil {
			r.logger.Error("Old rows could not be deleted: the table grows until they can", err, nil)
			return err
		}
	}
	return nil
}

// take returns the rows to write, and begins new ones.
func (r *Recorder) take() (rows []row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, m := range r.spools {
		if found := m.take(key); !found.isEmpty() {
			rows = append(rows, found)
		}
	}
	return rows
}

func (r *Recorder) insert(ctx context.Context, minute int64, rows []row) error {
	var args []any
	for _, row := range rows {
		starts := 1
		if row.of.known {
			starts = 0
		}
		args = append(args,
			minute, row.stored, row.done, row.failed, row.dead, row.waits.quantile(median), row.waits.quantile(slow), row.calls.quantile(median), row.calls.quantile(slow),
			starts, row.kind, row.name, r.process)
	}
	_, err := r.db.ExecContext(ctx, r.statements.Text(insertText+strings.Repeat(anotherRow, len(rows)-1)), args...)
	return err
}

// cleanUp deletes rows before a minute.
func (r *Recorder) cleanUp(ctx context.Context, before int64) error {
	for range cleanSteps {
		var oldest sql.NullInt64
		if err := r.db.QueryRowContext(ctx, r.statements.Text(oldestText)).Scan(&oldest); err != nil {
			return fmt.Errorf("minutes: look for old rows: %w", err)
		}
		if !oldest.Valid || oldest.Int64 >= before {
			return nil
		}
		if _, err := r.db.ExecContext(ctx, r.statements.Text(cleanText), min(before, oldest.Int64+cleanStep)); err != nil {
			return fmt.Errorf("minutes: delete old rows: %w", err)
		}
	}
	return nil
}

// The statements.
const (
	insertText = `
INSERT INTO {minutes} (minute, arrived, done, failed, dead, wait_p50, wait_p95, call_p50, call_p95, starts, kind, name, process)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	anotherRow = `, (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	oldestText = `SELECT MIN(minute) FROM {minutes}`
	cleanText  = `DELETE FROM {minutes} WHERE minute < ?`
)
