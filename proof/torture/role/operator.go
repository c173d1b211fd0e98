package role

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

const (
	// shift is how long an operator rests between two things to do.
	shift = 700 * time.Millisecond
	// look is the most dead letters that an operator reads at once.
	look = 50
)

// operate is an operator who is never satisfied: counts, requeues, pauses and resumes, sets and
// sets back.
func (p *process) operate(ctx context.Context) error {
	operator, err := admin.New(postbox.Database{DB: p.db, Dialect: postbox.PostgreSQL}, admin.Config{}, p.logger)
	if err != nil {
		return err
	}
	for wait(ctx, shift) {
		// The last one may have been killed before it resumed what it had paused.
		if err := Resume(ctx, operator); err != nil {
			fmt.Fprintln(os.Stderr, "resume:", err)
			continue
		}
		tasks := []func(context.Context, *admin.Admin) error{p.count, p.requeue, p.requeue, p.requeue, p.pause, p.pauseKey, p.set}
		if err := tasks[rand.IntN(len(tasks))](ctx, operator); err != nil { //nolint:gosec // any task will do
			fmt.Fprintln(os.Stderr, "operate:", err)
		}
	}
	return nil
}

// Targets are the outbox and all queues.
func Targets() []admin.Target {
	targets := []admin.Target{admin.Outbox(spool.DefaultOutbox)}
	for _, flow := range ledger.Flows {
		if flow.Queue() != "" {
			targets = append(targets, admin.Queue(flow.Queue()))
		}
	}
	return targets
}

// Resume ends all pauses.
func Resume(ctx context.Context, operator *admin.Admin) error {
	for _, target := range Targets() {
		keys, err := operator.Paused(ctx, target)
		if errors.Is(err, admin.ErrNotFound) {
			continue // nobody has used it yet
		}
		if err != nil {
			return err
		}
		if err := operator.Resume(ctx, admin.Filter{Target: target, All: true}); err != nil {
			return err
		}
		for _, paused := range keys {
			if err := operator.Resume(ctx, admin.Filter{Target: target, Key: paused.Key, Topic: paused.Topic}); err != nil {
				return err
			}
		}
	}
	return nil
}

func anyTarget() admin.Target {
	targets := Targets()
	return targets[rand.IntN(len(targets))] //nolint:gosec // any will do
}

// count looks at everything there is to see.
func (p *process) count(ctx context.Context, operator *admin.Admin) error {
	_, err := operator.Queues(ctx)
	if err != nil {
		return err
	}
	target := anyTarget()
	if _, err := operator.Account(ctx, target); err != nil {
		return err
	}
	_, _, err = operator.Messages(ctx, admin.Filter{Target: target})
	return err
}

// pause stops everything of a queue for a moment.
func (p *process) pause(ctx context.Context, operator *admin.Admin) error {
	target := anyTarget()
	if err := operator.Pause(ctx, admin.Filter{Target: target, All: true}); err != nil {
		return err
	}
	_ = wait(ctx, shift)
	return operator.Resume(context.WithoutCancel(ctx), admin.Filter{Target: target, All: true})
}

// pauseKey stops a key for a moment.
func (p *process) pauseKey(ctx context.Context, operator *admin.Admin) error {
	target, key := anyTarget(), anyKey()
	if err := operator.Pause(ctx, admin.Filter{Target: target, Key: key}); err != nil {
		return err
	}
	_ = wait(ctx, shift)
	return operator.Resume(context.WithoutCancel(ctx), admin.Filter{Target: target, Key: key})
}

// set changes how a queue works, while it does. What others rely on, the outbox's history, stays.
func (p *process) set(ctx context.Context, operator *admin.Admin) error {
	target := anyTarget()
	settings := admin.Settings{
		PageSize: 20 + rand.IntN(200), Concurrency: 1 + rand.IntN(20), //nolint:gosec // any will do
		PollMax: time.Second,
	}
	if target == admin.Outbox(spool.DefaultOutbox) {
		settings.History = OutboxHistory
	}
	_, err := operator.ChangeSettings(ctx, target, func(stored *admin.Settings) error {
		*stored = settings
		return nil
	})
	return err
}

// OutboxHistory is how long the outbox keeps what it has published: for the whole run, so that
// everything that was ever written can be accounted for.
const OutboxHistory = 24 * time.Hour

// requeue gives some dead letters another turn, each of them twice at the same instant, as two
// operators would.
func (p *process) requeue(ctx context.Context, operator *admin.Admin) error {
	letters, _, err := operator.DeadLetters(ctx, admin.Filter{Limit: look})
	if err != nil {
		return err
	}
	for _, letter := range letters {
		if !chance(3) {
			continue
		}
		r := history.Record{Message: letter.MessageID, Topic: letter.Topic, Consumer: ConsumerOf(letter), Key: letter.Key}
		if chance(2) {
			r.Kind = history.Healed
			p.history.Write(r) // first: whoever is killed in between has healed nothing, and said nothing wrong
			if _, err := marks(p.Marks).leave(healed(letter.MessageID)); err != nil {
				return err
			}
		}
		r.Kind = history.Requeueing
		p.history.Write(r)
		if err := requeueTwice(ctx, operator, letter.ID); err != nil {
			return err
		}
		r.Kind = history.Requeued
		p.history.Write(r)
	}
	return nil
}

// ConsumerOf says whose letter it is: the topic of a message in a queue is the queue's name.
func ConsumerOf(letter admin.DeadLetter) string {
	if letter.Consumer != "" || letter.Target == admin.Outbox(spool.DefaultOutbox) {
		return letter.Consumer
	}
	return letter.Topic
}

// requeueTwice fails unless exactly one of the two has requeued the letter, or nobody knows.
func requeueTwice(ctx context.Context, operator *admin.Admin, letter int64) error {
	errs := make([]error, 2)
	var operators sync.WaitGroup
	for n := range errs {
		operators.Go(func() { _, errs[n] = operator.Requeue(ctx, admin.Filter{ID: letter}, admin.Again{}) })
	}
	operators.Wait()
	if errs[0] == nil && errs[1] == nil {
		// Nobody reads the standard error of a process that works: this must be seen.
		panic(fmt.Sprintf("F22: two operators have both requeued letter %d", letter))
	}
	for _, err := range errs {
		resolved := errors.Is(err, admin.ErrRefused) && strings.Contains(err.Error(), "resolved already")
		if err != nil && !errors.Is(err, admin.ErrNotFound) && !resolved {
			return err
		}
	}
	return nil
}

func anyKey() string { return fmt.Sprintf("key-%d", rand.IntN(keys)) } //nolint:gosec // any key will do
