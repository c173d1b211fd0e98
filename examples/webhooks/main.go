// Webhooks sends webhooks, and takes them in. A shop tells two endpoints of each order: its
// accounting, which is down at first and answers some requests too late, and a partner, who refuses
// one event. Read send/send.go and receive/receive.go; this file lets them work together, and
// judges.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/examples/webhooks/receive"
	"github.com/postbox-go/watermill-postbox/examples/webhooks/send"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

const prefix = "webhooks_postbox_"

// tables of the demo. Nothing in them prevents an effect that happens twice.
const tables = `
CREATE TABLE IF NOT EXISTS webhooks_orders (number INTEGER NOT NULL, customer VARCHAR(20) NOT NULL);
CREATE TABLE IF NOT EXISTS webhooks_booked (place INTEGER NOT NULL, number INTEGER NOT NULL, customer VARCHAR(20) NOT NULL);
DELETE FROM webhooks_orders;
DELETE FROM webhooks_booked;`

func main() {
	settings := pipes.Flags()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *settings, 200); err != nil {
		fmt.Fprintln(os.Stderr, "webhooks:", err)
		os.Exit(1)
	}
}

type order struct {
	Number   int    `json:"number"`
	Customer string `json:"customer"`
}

// refused is the number of the order that the partner does not like.
const refused = 7

func run(ctx context.Context, out io.Writer, settings pipes.Settings, orders int) (err error) {
	p, err := settings.Open(ctx, prefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if _, err := p.DB.ExecContext(ctx, tables); err != nil {
		return err
	}
	accounting, err := newAccounting(p)
	if err != nil {
		return err
	}
	defer accounting.server.Close()
	partner := &partner{}
	partnerServer := httptest.NewServer(partner)
	defer partnerServer.Close()

	endpoints := map[string]send.Endpoint{
		"accounting": {URL: accounting.server.URL, Secret: accounting.endpoint.Secret},
		"partner":    {URL: partnerServer.URL, Secret: []byte("partner's"), PerSecond: 10_000},
	}
	config := send.Config(endpoints)
	config.Tuning = postbox.Tuning{ProbeMax: time.Second, ListenDSN: p.ListenDSN} // a demo does not wait for 30 s
	publisher := &send.Publisher{Endpoints: endpoints, Client: &http.Client{Timeout: 5 * time.Second}}
	fwd, err := forwarder.New(p.Tables(prefix), publisher, config, p.Logger)
	if err != nil {
		return err
	}
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return fwd.Run(context.WithoutCancel(ctx)) })
	running.Go(func() error { return accounting.work(ctx) })
	running.Go(func() error {
		err := place(ctx, p, orders)
		if err == nil {
			err = accounting.wait(ctx, orders)
		}
		if err == nil {
			err = partner.wait(ctx, orders-1)
		}
		return errors.Join(err, fwd.Close(), accounting.subscriber.Close())
	})
	if err := running.Wait(); err != nil {
		return err
	}
	return judge(context.WithoutCancel(ctx), out, p, orders, accounting, partner)
}

// place places orders of a few customers, and tells both endpoints of each in its transaction.
func place(ctx context.Context, p *pipes.Pipes, orders int) error {
	outbox, err := forwarder.NewPublisher(p.Tables(prefix), forwarder.PublisherConfig{Outbox: "webhooks"}, p.Logger)
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	const customers = 10
	for number := range orders {
		o := order{Number: number, Customer: fmt.Sprint("customer ", number%customers)}
		body, err := json.Marshal(o)
		if err != nil {
			return err
		}
		err = postbox.InTx(ctx, p.DB, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO webhooks_orders (number, customer) VALUES ($1, $2)", o.Number, o.Customer); err != nil {
				return err
			}
			for _, endpoint := range []string{"accounting", "partner"} {
				if err := outbox.Publish(endpoint, send.Event(ctx, endpoint, o.Customer, body)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// accounting takes in webhooks, and books each order once.
type accounting struct {
	pipes      *pipes.Pipes
	endpoint   *receive.Endpoint
	server     *httptest.Server
	subscriber *queue.Subscriber
	requests   atomic.Int64
}

func newAccounting(p *pipes.Pipes) (*accounting, error) {
	store, err := inboxstore.New(p.Tables(prefix), inboxstore.Config{}, p.Logger)
	if err != nil {
		return nil, err
	}
	a := &accounting{pipes: p, endpoint: &receive.Endpoint{
		Store: store, Source: "shop", Queue: "booking", Secret: []byte("accounting's"), Logger: p.Logger,
	}}
	a.subscriber, err = queue.NewSubscriber(store, queue.Config{Transactional: true, Tuning: postbox.Tuning{ListenDSN: p.ListenDSN}}, p.Logger)
	a.server = httptest.NewServer(a)
	return a, err
}

// ServeHTTP is down at first. Later it drops each tenth answer: the event is stored, and comes
// again.
func (a *accounting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const downFor, each = 5, 10
	n := a.requests.Add(1)
	if n <= downFor {
		http.Error(w, "down", http.StatusBadGateway)
		return
	}
	if n%each == 0 {
		a.endpoint.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler) // the connection breaks
	}
	a.endpoint.ServeHTTP(w, r)
}

// work books orders.
func (a *accounting) work(ctx context.Context) error {
	router, err := message.NewRouter(message.RouterConfig{}, a.pipes.Logger)
	if err != nil {
		return err
	}
	router.AddConsumerHandler("booking", "booking", a.subscriber, book).AddMiddleware(middleware.Process)
	return router.Run(context.WithoutCancel(ctx)) // until the subscriber is closed
}

func book(msg *message.Message) error {
	tx, found := postbox.TxFromContext(msg.Context())
	if !found {
		return postbox.ErrNoTransaction
	}
	var o order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return postbox.Permanent(err)
	}
	_, err := tx.ExecContext(msg.Context(), `INSERT INTO webhooks_booked (place, number, customer)
		SELECT COUNT(*), CAST($1 AS INTEGER), CAST($2 AS VARCHAR(20)) FROM webhooks_booked WHERE customer = $2`, o.Number, o.Customer)
	return err
}

func (a *accounting) wait(ctx context.Context, orders int) error {
	return until(ctx, func() (bool, error) {
		var booked int
		err := a.pipes.DB.QueryRowContext(ctx, "SELECT COUNT(DISTINCT number) FROM webhooks_booked").Scan(&booked)
		return booked == orders, err
	})
}

// partner is somebody else's service. It refuses one event, and takes down the numbers of others.
type partner struct {
	got     atomic.Pointer[[]int]
	refused atomic.Int64
}

// ServeHTTP is called by one request at a time, since the events have one key.
func (p *partner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Number == refused {
		p.refused.Add(1)
		http.Error(w, "we do not like this order", http.StatusUnprocessableEntity)
		return
	}
	numbers := append(p.numbers(), o.Number)
	p.got.Store(&numbers)
}

func (p *partner) numbers() []int {
	if got := p.got.Load(); got != nil {
		return *got
	}
	return nil
}

func (p *partner) wait(ctx context.Context, orders int) error {
	return until(ctx, func() (bool, error) { return len(p.numbers()) >= orders && p.refused.Load() > 0, nil })
}

func until(ctx context.Context, done func() (bool, error)) error {
	const pause = 20 * time.Millisecond
	for {
		if is, err := done(); is || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// judge looks at what is left.
func judge(ctx context.Context, out io.Writer, p *pipes.Pipes, orders int, a *accounting, partner *partner) error {
	count := func(query string) (n int, err error) {
		err = p.DB.QueryRowContext(ctx, query).Scan(&n)
		return n, err
	}
	lost, err1 := count("SELECT COUNT(*) FROM webhooks_orders o WHERE NOT EXISTS (SELECT 1 FROM webhooks_booked b WHERE b.number = o.number)")
	twice, err2 := count("SELECT COUNT(*) - COUNT(DISTINCT number) FROM webhooks_booked")
	disorder, err3 := count(`SELECT COUNT(*) FROM webhooks_booked a JOIN webhooks_booked b
		ON b.customer = a.customer AND b.place > a.place AND b.number < a.number`)
	operator, err4 := admin.New(p.Tables(prefix), admin.Config{}, p.Logger)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	letters, _, err := operator.DeadLetters(ctx, admin.Filter{})
	if err != nil {
		return err
	}
	for _, letter := range letters {
		fmt.Fprintf(out, "Dead letter %d for the %s: %s\n", letter.ID, letter.Topic, letter.Error)
	}
	for i, number := range partner.numbers() {
		if i > 0 && number <= partner.numbers()[i-1] {
			disorder++
		}
	}
	fmt.Fprintf(out, "RESULT orders=%d lost=%d booked_twice=%d out_of_order=%d dead_letters=%d requests_to_accounting=%d\n",
		orders, lost, twice, disorder, len(letters), a.requests.Load())
	if lost+twice+disorder > 0 || len(letters) == 0 { // earlier runs have left theirs
		return errors.New("something is wrong")
	}
	return nil
}
