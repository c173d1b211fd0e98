package driver

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
	"github.com/postbox-go/watermill-postbox/proof/torture/role"
)

const (
	// sight is how often somebody looks at the run.
	sight = 5 * time.Second
	// warmth is how long the first effect may take, on a cold machine.
	warmth = time.Minute
	// answer is how long the driver waits for the database.
	answer = 3 * time.Second
)

// watch prints how far things are, and samples the memory of the processes.
func (r *run) watch(ctx context.Context) {
	for wait(ctx, sight) {
		r.sample(ctx)
		if err := r.progress(ctx); err != nil && ctx.Err() == nil {
			r.say("          (the database does not say how far things are: %s)", err)
		}
	}
}

func (r *run) progress(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	intents, err := ledger.Intents(ctx, r.db)
	if err != nil {
		return err
	}
	effects, err := ledger.Effects(ctx, r.db)
	if err != nil {
		return err
	}
	pending, dead, err := r.counts(ctx)
	if err != nil {
		return err
	}
	r.say("          %d messages written, %d effects, %d pending, %d dead letters", intents, effects, pending, dead)
	return nil
}

// counts adds up the outbox and all queues, and the letters of inboxes.
func (r *run) counts(ctx context.Context) (pending, dead int, err error) {
	operator, err := admin.New(postbox.Database{DB: r.db, Dialect: postbox.PostgreSQL}, admin.Config{}, nil)
	if err != nil {
		return 0, 0, err
	}
	for _, target := range role.Targets() {
		account, err := operator.Account(ctx, target)
		if errors.Is(err, admin.ErrNotFound) {
			continue // nobody has used it yet
		}
		if err != nil {
			return 0, 0, err
		}
		pending += account.Pending
	}
	letters, err := deadLetters(ctx, operator)
	return pending, len(letters), err
}

// deadLetters reads all of them.
func deadLetters(ctx context.Context, operator *admin.Admin) ([]admin.DeadLetter, error) {
	var all []admin.DeadLetter
	filter := admin.Filter{Limit: 1000}
	for {
		page, next, err := operator.DeadLetters(ctx, filter)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if filter.After = next; next == "" {
			return all, nil
		}
	}
}

// sample asks ps, which every system has.
func (r *run) sample(ctx context.Context) {
	for name, p := range r.processes {
		output, err := exec.CommandContext(ctx, "ps", "-o", "rss=", "-p", strconv.Itoa(p.pid())).Output() //nolint:gosec // a number
		if err != nil {
			continue // it is down
		}
		kilobytes, err := strconv.ParseInt(strings.TrimSpace(string(output)), 10, 64)
		if err != nil {
			continue
		}
		r.mu.Lock()
		r.memory = append(r.memory, checker.Sample{Process: name, At: time.Now(), Bytes: kilobytes << 10})
		r.mu.Unlock()
	}
}

// warmUp waits until every flow works.
func (r *run) warmUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, warmth)
	defer cancel()
	for _, flow := range ledger.Flows {
		for {
			works, err := ledger.Works(ctx, r.db, flow)
			if err != nil {
				return err
			}
			if works {
				break
			}
			if !wait(ctx, respite) {
				return errors.New("nothing reaches " + flow.Consumer + ", and nothing is broken yet: see the logs")
			}
		}
	}
	r.say("everything works after %.1f s; now it will be broken", time.Since(r.begun).Seconds())
	return r.account(ctx)
}
