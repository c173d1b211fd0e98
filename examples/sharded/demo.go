package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"time"
)

const (
	lookEvery = 50 * time.Millisecond
	// patience is how long nothing may happen: a group of Kafka misses a killed member after six
	// seconds, and a server that was killed has to come back.
	patience = 2 * time.Minute
	// each is how many processes there are of a role.
	each = 2
)

// demo starts processes and kills them, adds a server and moves accounts.
type demo struct {
	settings

	out           io.Writer
	all           shards
	known         int // servers that the processes know
	shops, biller []*process
	kills, moves  int
}

func runDemo(ctx context.Context, s settings, out io.Writer) (err error) {
	s.homes = len(s.shards) - 1
	d := &demo{settings: s, out: out, known: s.homes}
	if d.all, err = openShards(ctx, s, newLogger()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.all.close()) }()
	defer func() { err = errors.Join(err, d.end()) }()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	for range each {
		if err := errors.Join(d.start(&d.shops, "shop"), d.start(&d.biller, "billing")); err != nil {
			return err
		}
	}
	d.say("Two shops take orders for %d accounts on %d servers, two processes bill them.", accounts, d.known)
	for _, incident := range []func(context.Context) error{
		d.killShop, d.killBilling, d.addServer, d.moveAccounts, d.killPostgres, d.killKafka, d.moveBack,
	} {
		if err := d.progress(ctx); err != nil {
			return err
		}
		if err := incident(ctx); err != nil {
			return err
		}
	}
	return d.finish(ctx)
}

func (d *demo) say(format string, args ...any) { _, _ = fmt.Fprintf(d.out, format+"\n", args...) }

// prepare makes tables and accounts. The last server is empty, and not known to anybody.
func (d *demo) prepare(ctx context.Context) error {
	for n, one := range d.all {
		if err := one.migrate(ctx); err != nil {
			return fmt.Errorf("server %d: %w", n, err)
		}
	}
	billing := d.all[0].database.DB
	if _, err := billing.ExecContext(ctx, billingTables); err != nil {
		return err
	}
	for n := range accounts {
		name := d.accountName(n)
		_, err := d.all[home(name, d.homes)].database.DB.ExecContext(ctx,
			`INSERT INTO sharded_accounts (account, version, cents) VALUES ($1, 0, 0)`, name)
		if err != nil {
			return err
		}
		if _, err := billing.ExecContext(ctx, `INSERT INTO sharded_billed (account, version, cents) VALUES ($1, 0, 0)`, name); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) start(of *[]*process, role string) error {
	p, err := startProcess(d.args(role, d.known))
	*of = append(*of, p)
	return err
}

// replace kills a process, and starts another one.
func (d *demo) replace(of *[]*process, role string) error {
	d.kills++
	if err := (*of)[0].kill(); err != nil {
		return err
	}
	*of = slices.Delete(*of, 0, 1)
	return d.start(of, role)
}

func (d *demo) killShop(context.Context) error {
	d.say("A shop is killed, and another one started.")
	return d.replace(&d.shops, "shop")
}

func (d *demo) killBilling(context.Context) error {
	d.say("A process of the billing is killed, and another one started.")
	return d.replace(&d.biller, "billing")
}

// addServer starts the shops again, one after the other, with one server more.
func (d *demo) addServer(ctx context.Context) error {
	d.known = len(d.shards)
	d.say("Server %d is added: the shops start again, one after the other.", d.known-1)
	for range each {
		if err := d.shops[0].end(); err != nil {
			return err
		}
		d.shops = slices.Delete(d.shops, 0, 1)
		if err := d.start(&d.shops, "shop"); err != nil {
			return err
		}
		if err := d.progress(ctx); err != nil {
			return err
		}
	}
	return nil
}

// moveAccounts moves every third account to the new server, and kills a shop meanwhile.
func (d *demo) moveAccounts(ctx context.Context) error {
	const third = 3
	last := len(d.all) - 1
	d.say("Every third account moves to server %d, and a shop is killed meanwhile.", last)
	for n := 0; n < accounts; n += third {
		if n == accounts/2 {
			if err := d.replace(&d.shops, "shop"); err != nil {
				return err
			}
		}
		if err := d.move(ctx, d.accountName(n), last); err != nil {
			return err
		}
	}
	return d.arrived(ctx, last, accounts/third)
}

// moveBack moves one account home again.
func (d *demo) moveBack(ctx context.Context) error {
	name := d.accountName(0)
	d.say("An account moves back.")
	if err := d.move(ctx, name, home(name, d.homes)); err != nil {
		return err
	}
	return d.until(ctx, "the account to be back", func() (bool, error) {
		var there bool
		err := d.all[home(name, d.homes)].database.DB.QueryRowContext(ctx,
			`SELECT moved_to IS NULL FROM sharded_accounts WHERE account = $1`, name).Scan(&there)
		return there, err
	})
}

func (d *demo) move(ctx context.Context, account string, to int) error {
	d.moves++
	return d.until(ctx, "an account to move", func() (bool, error) {
		err := d.all.move(ctx, account, d.homes, to)
		return err == nil, err
	})
}

// arrived waits until so many accounts of this run are on a server.
func (d *demo) arrived(ctx context.Context, server, want int) error {
	return d.until(ctx, "accounts to arrive", func() (bool, error) {
		n, err := count(ctx, d.all[server], `SELECT COUNT(*) FROM sharded_accounts
			WHERE starts_with(account, $1) AND moved_to IS NULL`, d.topic)
		return n >= want, err
	})
}

func (d *demo) killPostgres(ctx context.Context) error { return d.fault(ctx, "postgres") }

func (d *demo) killKafka(ctx context.Context) error { return d.fault(ctx, "kafka") }

// fault asks for a server to be killed and started again, where somebody can do that.
func (d *demo) fault(ctx context.Context, server string) error {
	if d.faults == "" {
		return nil
	}
	d.kills++
	d.say("A server of %s is killed, and started again.", server)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.faults+"/"+server, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(response.Body) // the status alone is an error
		return fmt.Errorf("kill a server of %s: %s: %s", server, response.Status, said)
	}
	return nil
}

// progress waits until the billing has handled some more orders.
func (d *demo) progress(ctx context.Context) error {
	start := -1
	return d.until(ctx, "orders to be billed", func() (bool, error) {
		n, err := d.billed(ctx)
		if start < 0 {
			start = n
		}
		return n >= start+d.phase, err
	})
}

func (d *demo) billed(ctx context.Context) (int, error) {
	return count(ctx, d.all[0], `SELECT COUNT(*) FROM sharded_effects WHERE starts_with(account, $1)`, d.topic)
}

func count(ctx context.Context, at *shard, query string, args ...any) (n int, err error) {
	err = at.database.DB.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}

// until waits for a condition. A server may be away meanwhile.
func (d *demo) until(ctx context.Context, what string, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for {
		is, err := is()
		if is && err == nil {
			return nil
		}
		if err != nil {
			last = err
		}
		for _, p := range slices.Concat(d.shops, d.biller) {
			if p.hasEnded() {
				return errors.Join(errors.New("a process ended by itself"), p.end())
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait for %s: %w", what, ctx.Err()), last)
		case <-time.After(lookEvery):
		}
	}
}

// finish takes no more orders, waits until all are billed, and judges.
func (d *demo) finish(ctx context.Context) error {
	for _, p := range d.shops {
		if _, err := io.WriteString(p.input, stop+"\n"); err != nil {
			return err
		}
	}
	before := -1 // orders of a moment ago: none comes any more
	err := d.until(ctx, "the last orders to be billed", func() (bool, error) {
		orders, err := d.orders(ctx)
		if err != nil {
			return false, err
		}
		billed, err := d.billed(ctx)
		still := orders == before
		before = orders
		return still && billed >= orders, err
	})
	if err != nil {
		d.say("%v", err)
	}
	if err := d.end(); err != nil {
		return err
	}
	return d.judge(ctx)
}

// end ends all processes in order.
func (d *demo) end() (err error) {
	for _, p := range slices.Concat(d.shops, d.biller) {
		err = errors.Join(err, p.end())
	}
	d.shops, d.biller = nil, nil
	return err
}

// process is this program once more, in another role.
type process struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  bytes.Buffer  // to be read when it has ended
	ended   chan struct{} // closed then
	err     error         // set then
}

func startProcess(args []string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{command: exec.Command(program, args...), ended: make(chan struct{})} //nolint:gosec,noctx // this program; end ends it
	p.command.Env = append(os.Environ(), roleVariable+"=1")
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	if p.input, err = p.command.StdinPipe(); err != nil { // its end tells the process of ours
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// roleVariable tells the tests' program that it is a process of the demo.
const roleVariable = "POSTBOX_SHARDED_ROLE"

// kill ends the process as kill -9 does.
func (p *process) kill() error {
	err := p.command.Process.Kill()
	<-p.ended
	return err
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// end ends the process in order, and returns why it failed.
func (p *process) end() error {
	_ = p.input.Close() // it may have ended
	<-p.ended
	if p.err == nil {
		return nil
	}
	const lastWords = 4096
	printed := p.output.Bytes()
	return fmt.Errorf("%v: %w\n%s", p.command.Args[1:3], p.err, printed[max(0, len(printed)-lastWords):])
}
