package crashpoints_test

import (
	"errors"
	"slices"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
)

// attempts is the bound that all flows set.
const attempts = 3

// published: of the topic, the broker got these messages and no others, those of one key in this
// order: the first time that it got each. Unless something happened, it got each once.
func (c *check) published(topic string, want ...string) {
	c.Helper()
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	var first []sent
	for _, s := range c.w.published {
		if s.topic != topic {
			continue
		}
		if slices.Contains(first, s) {
			c.require().True(c.struck, "%s was published twice", s.id)
			continue
		}
		first = append(first, s)
	}
	got := map[string][]string{} // by key
	for _, s := range first {
		got[s.key] = append(got[s.key], s.id)
	}
	var all []string
	for key, ids := range got {
		all = append(all, ids...)
		if key == "" {
			continue
		}
		inOrder := slices.DeleteFunc(slices.Clone(want), func(id string) bool { return !slices.Contains(ids, id) })
		c.require().Equal(inOrder, ids, "the order of key %q", key)
	}
	c.require().ElementsMatch(want, all, "what was published")
}

// effects: these happened, and no others, each once.
func (c *check) effects(want ...string) {
	c.Helper()
	c.require().ElementsMatch(want, list(c.T, c.w.database, selectEffects))
}

// inOrder: of what happened, these did in this order.
func (c *check) inOrder(want ...string) {
	c.Helper()
	got := slices.DeleteFunc(list(c.T, c.w.database, selectEffects), func(what string) bool { return !slices.Contains(want, what) })
	c.require().Equal(want, got, "the order of a key")
}

// pending: these wait in the spool, each once.
func (c *check) pending(spool string, want ...string) {
	c.Helper()
	c.require().ElementsMatch(want, list(c.T, c.w.database, listPending, spool))
}

// letters returns the open dead letters.
func (c *check) letters() map[string]admin.DeadLetter {
	c.Helper()
	operator, err := admin.New(c.w.database.Postbox(), admin.Config{}, nil)
	c.require().NoError(err)
	found, _, err := operator.DeadLetters(c.Context(), admin.Filter{})
	c.require().NoError(err)
	letters := map[string]admin.DeadLetter{}
	for _, letter := range found {
		c.require().NotContains(letters, letter.MessageID, "one message died twice")
		letters[letter.MessageID] = letter
	}
	return letters
}

// dead: these messages are dead letters, and no others, none of them after more attempts than it
// has. A crash between the last failure and the burial may have cost one more.
func (c *check) dead(want ...string) {
	c.Helper()
	letters := c.letters()
	var got []string
	for id, letter := range letters {
		got = append(got, id)
		c.require().LessOrEqual(letter.Attempts, c.bound(), id)
		c.require().Positive(letter.Attempts, id)
		if id == fatal {
			c.require().LessOrEqual(letter.Attempts, c.once(), id)
		}
	}
	c.require().ElementsMatch(want, got, "what is dead")
	c.require().Zero(c.count(countTwice), "one attempt was written down twice")
	c.require().LessOrEqual(c.count(mostAttempts), c.bound())
}

func (c *check) bound() int { return attempts - 1 + c.once() }

// once is how often something happens that happens once.
func (c *check) once() int {
	if c.struck {
		return 2
	}
	return 1
}

// runs: a handler ran for each of these messages, and not more often than so many times in all; a
// fault repeats what was under way, which is so many messages at most.
func (c *check) runs(want map[string]int, underWay int) {
	c.Helper()
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	ran := map[string]int{}
	for _, id := range c.w.handled {
		ran[id]++
	}
	extra := 0
	for id, times := range ran {
		c.require().Contains(want, id)
		extra += max(times-want[id], 0)
		if times < want[id] {
			c.require().True(c.struck, "%s was handled %d times", id, times)
		}
	}
	for id := range want {
		c.require().Contains(ran, id)
	}
	if !c.struck {
		underWay = 0
	}
	c.require().LessOrEqual(extra, underWay, "handlers ran too often: %v", ran)
}

// account: so many messages were written, and each is pending, done or dead.
func (c *check) account(target admin.Target, want admin.Account) {
	c.Helper()
	operator, err := admin.New(c.w.database.Postbox(), admin.Config{}, nil)
	c.require().NoError(err)
	got, err := operator.Account(c.Context(), target)
	c.require().NoError(err)
	c.require().Equal(want, got)
}

// told: who heard that it is done finds it done; who heard an error that leaves no doubt finds
// nothing.
func (c *check) told(what string, done bool) {
	c.Helper()
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	err, said := c.w.heard[what]
	switch {
	case !said:
	case err == nil:
		c.require().True(done, "%s: success was reported", what)
	case !errors.Is(err, postbox.ErrCommitUnknown):
		c.require().False(done, "%s: failure was reported: %s", what, err)
	}
}
