package command

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/postbox-go/watermill-postbox/admin"
)

// action describes what is done to many messages or dead letters.
type action struct{ name, done, noun string }

// outcomeRecord says how far an action has got.
type outcomeRecord struct {
	Action string `json:"action"`
	Done   int    `json:"done"`
	// Failed is how many could not be acted on.
	Failed int `json:"failed"`
	// Stopped is set if the operator interrupted the action.
	Stopped bool `json:"stopped"`
}

// given are ids that the operator named.
func given(ids []int64) iter.Seq2[int64, error] {
	return func(yield func(int64, error) bool) {
		for _, id := range ids {
			if !yield(id, nil) {
				return
			}
		}
	}
}

// each acts on each id, and prints how far it got. A signal ends it after the transaction that is
// running: that one is not interrupted, so that its outcome is known. What cannot be acted on is
// reported, and the rest goes on.
func (s *session) each(what action, ids iter.Seq2[int64, error], act func(ctx context.Context, id int64) error) error {
	ctx := s.cmd.Context()
	outcome := outcomeRecord{Action: what.name}
	far := s.howFar()
	var ended error
	next := int64(0)
	for id, err := range ids {
		if outcome.Stopped = ctx.Err() != nil; outcome.Stopped {
			next = id
			break
		}
		if err == nil {
			err = act(context.WithoutCancel(ctx), id)
		}
		if ended = outcome.count(s, far, what, id, err); ended != nil {
			break
		}
	}
	far.end()
	if err := outcome.print(s, what); err != nil {
		return errors.Join(ended, err)
	}
	switch {
	case ended != nil:
		return fmt.Errorf("ended after %s: %w", count(outcome.Done, what.noun), ended)
	case outcome.Stopped:
		return stoppedf("interrupted after %s: the next one is that with the id %d", count(outcome.Done, what.noun), next)
	case outcome.Failed > 0:
		return fmt.Errorf("%s not %s", are(outcome.Failed, what.noun), what.done)
	}
	return nil
}

// all acts on what a filter chooses, and prints how far it got. A signal ends it after the
// transaction that is running.
func (s *session) all(what action, act func(ctx context.Context, progress func(admin.Progress)) (int, error)) error {
	ctx := s.cmd.Context()
	outcome := outcomeRecord{Action: what.name}
	far := s.howFar()
	done, err := act(ctx, func(p admin.Progress) {
		outcome.Failed = p.Skipped
		far.say(p.Done, "%s %s so far.", count(p.Done, what.noun), what.done)
	})
	far.end()
	if neverBegan(err) {
		return err
	}
	outcome.Done = done
	outcome.Stopped = ctx.Err() != nil && errors.Is(err, context.Canceled)
	if printErr := outcome.print(s, what); printErr != nil {
		return errors.Join(err, printErr)
	}
	switch {
	case outcome.Stopped:
		return stoppedf("interrupted after %s: run the command again to go on", count(done, what.noun))
	case outcome.Failed > 0:
		s.progress("%s", lines(err.Error()))
		return fmt.Errorf("%s not %s", are(outcome.Failed, what.noun), what.done)
	case err != nil:
		return fmt.Errorf("ended after %s: %w", count(done, what.noun), err)
	}
	return nil
}

// neverBegan says whether an action on many was refused before it did anything.
func neverBegan(err error) bool {
	return errors.Is(err, admin.ErrNotFound) || errors.Is(err, admin.ErrInvalid)
}

func (o *outcomeRecord) print(s *session, what action) error {
	return s.one(*o, fmt.Sprintf("%s %s.\n", count(o.Done, what.noun), what.done))
}

// count notes the outcome for one id, and returns an error that ends the action.
func (o *outcomeRecord) count(s *session, far *howFar, what action, id int64, err error) error {
	switch {
	case err == nil:
		o.Done++
		far.say(o.Done, "%s %s so far.", count(o.Done, what.noun), what.done)
		return nil
	case errors.Is(err, admin.ErrNotFound), errors.Is(err, admin.ErrRefused):
		o.Failed++
		far.end()
		s.progress("%s %d: %s", what.noun, id, lines(err.Error()))
		return nil
	default:
		return err
	}
}
