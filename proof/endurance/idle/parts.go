package idle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// patience is how long a forwarder may take to begin to read the log, and a message to come through
// it.
const patience = time.Minute

// idler is a forwarder with nothing to do, and its broker.
type idler struct {
	forwarder *forwarder.Forwarder
	database  postbox.Database
	// remove removes what the reader needs. The server forgets the slot of a reader that has ended
	// a moment later.
	remove      func() error
	end         context.CancelFunc
	ended       chan error
	reading     chan struct{} // closed when the log is read
	readingOnce sync.Once
	taken       chan struct{} // gets a token when a message came through the log
}

// startIdler returns a forwarder of rows that the log announces, once it reads the log.
func startIdler(ctx context.Context, where *place.Place) (*idler, error) {
	f := &idler{ended: make(chan error, 1), reading: make(chan struct{}), taken: make(chan struct{}, 1)}
	f.database = postbox.Database{DB: where.DB, Dialect: postbox.PostgreSQL, Metrics: instruments.RecorderFunc(f.note)}
	publication := "idle_" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if err := pgtail.Setup(ctx, f.database, publication); err != nil {
		return nil, err
	}
	f.remove = func() error { return pgtail.Remove(context.Background(), f.database, publication) }
	reader, err := pgtail.New(pgtail.Config{DSN: where.DSN, Publication: publication, Required: true})
	if err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, f.start(ctx, forwarder.Config{Tail: reader})
}

// start returns when the forwarder reads the log.
func (f *idler) start(ctx context.Context, config forwarder.Config) (err error) {
	if f.forwarder, err = forwarder.New(f.database, nowhere{}, config, nil); err != nil {
		return errors.Join(err, f.remove())
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	f.end = end
	go func() { f.ended <- f.forwarder.Run(running) }()
	select {
	case <-f.reading:
		return nil
	case <-time.After(patience):
		err = errors.New("the forwarder does not read the log")
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(err, f.close())
}

// note hears what the forwarder measures.
func (f *idler) note(i *metrics.Instrument, value float64, _ ...string) {
	switch {
	case i == instruments.LogReading && value > 0:
		f.readingOnce.Do(func() { close(f.reading) })
	case i == instruments.LogTaken && value > 0:
		select {
		case f.taken <- struct{}{}:
		default:
		}
	}
}

// works writes messages until one of them has come through the log. Some may be found by polling
// first.
func (f *idler) works(ctx context.Context) error {
	publisher, err := forwarder.NewPublisher(f.database, forwarder.PublisherConfig{AllowAutocommit: true}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	const pause = 100 * time.Millisecond
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err := publisher.Publish("after", message.NewMessage(watermill.NewULID(), nil)); err != nil {
			return err
		}
		select {
		case <-f.taken:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return errors.New("no message came through the log after the run")
}

func (f *idler) close() error {
	f.end()
	return errors.Join(<-f.ended, f.remove())
}

// nowhere is a broker that takes everything.
type nowhere struct{}

func (nowhere) Publish(string, ...*message.Message) error { return nil }

func (nowhere) Close() error { return nil }

// others are the databases whose tables are written: that of the outbox and another one of its
// server.
type others struct {
	databases []*sql.DB
	own       *sql.DB // of the outbox
	name      string
}

func openOthers(ctx context.Context, where *place.Place) (*others, error) {
	o := &others{own: where.DB, name: "idle_" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	if _, err := o.own.ExecContext(ctx, "CREATE DATABASE "+o.name); err != nil {
		return nil, fmt.Errorf("create another database: %w", err)
	}
	address, err := url.Parse(os.Getenv(place.LogVariable))
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	address.Path = "/" + o.name
	another, err := sql.Open("postgres", address.String())
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	o.databases = []*sql.DB{o.own, another}
	for _, db := range o.databases {
		if _, err := db.ExecContext(ctx, "CREATE TABLE busy (n integer, filler text)"); err != nil {
			return nil, errors.Join(fmt.Errorf("create a table: %w", err), o.close())
		}
	}
	return o, nil
}

func (o *others) close() error {
	var err error
	for _, db := range o.databases {
		if db != o.own {
			err = db.Close()
		}
	}
	_, dropped := o.own.ExecContext(context.Background(), "DROP DATABASE "+o.name)
	return errors.Join(err, dropped)
}
