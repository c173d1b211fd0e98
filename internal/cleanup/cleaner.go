package cleanup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

const (
	// cleanInterval is the default of Interval. With it a process without work executes a fifteenth
	// of a statement each second.
	cleanInterval = 30 * time.Second
	// restIntervals is how many intervals a task that has found nothing to delete rests at most.
	restIntervals = 60
	// lookIntervals is the same for a task whose rows operators may let be kept for a shorter time,
	// which a process without such rows does not know.
	lookIntervals = 10
	// watchIntervals is how many intervals there are between two renewals of the lease of a task
	// that deletes nothing.
	watchIntervals = 3
	// cleanBatch is the default number of rows that a statement of a cleaner deletes or reads.
	cleanBatch = 1000
	// letterBatch is the limit for dead letters, which may have megabytes each.
	letterBatch = 100
	// historyBatch is the limit for done messages: they may be as large, but there are many more of
	// them.
	historyBatch = 500
	// uniqueKeyBatch is the limit for unique keys: looking for the message of each takes several
	// searches, and the transaction that deletes a page of them makes producers of these keys wait.
	uniqueKeyBatch = 100
	// givenUp is how long a process leaves a task to others if it lacks the right to perform it.
	givenUp = time.Hour
	// leaveTimeout limits the time in which a stopping cleaner finishes a step and hands its tasks
	// back. Tasks that are not handed back expire.
	leaveTimeout = 5 * time.Second
)

// Config says what a cleaner deletes. The caller of [New] has checked every field.
type Config struct {
	Interval time.Duration // between two steps that find little; default 30 s
	Lease    time.Duration // how long a silent process keeps a task at least; default three intervals
	Batch    int           // rows of a statement; default 1000

	// How long to keep rows, counted from the death, the failed attempt or the claim. 0: this
	// cleaner ignores them; negative: they are kept. Unlike other settings of a process, these
	// should be equal everywhere, because the process that has the task decides. For the dead
	// letters of a spool the retention of its [spool.Settings] takes precedence.
	DeadLetters time.Duration
	Failures    time.Duration
	Claims      time.Duration
	// History says that the cleaner deletes old done messages. How long they are kept is stored
	// with each spool.
	History bool
	// Unattended is how long messages may wait without a drainer before that is logged, see
	// unattended.go; 0: this cleaner does not check.
	Unattended time.Duration
	// UniqueKeys says that the cleaner deletes unique keys whose message is gone.
	UniqueKeys bool
	// Others are tasks of packages beside the engine.
	Others []Task
}

func (c *Config) setDefaults() {
	if c.Interval <= 0 {
		c.Interval = cleanInterval
	}
	if c.Lease <= 0 {
		c.Lease = 3 * c.Interval
	}
	if c.Batch <= 0 {
		c.Batch = cleanBatch
	}
}

// Cleaner deletes rows that are older than their retention. One process at a time performs each
// task, in bounded statements and on one connection; the others stand by. It runs concurrently with
// the drain loops and does not wait for their idle moments, so a busy spool is cleaned too.
//
// A lease only keeps processes from doing the same work twice. Rows that are too old are too old
// for all processes, so a process that lost its lease unnoticed deletes the same rows as the next
// one would.
type Cleaner struct {
	db         *sql.DB
	statements *dialect.Statements
	holder     string
	config     Config
	logger     watermill.LoggerAdapter

	// The fields below belong to the goroutine of Run.
	tasks []*task
	fit   bool // set once the database has proved usable
}

// New returns a cleaner, which does nothing before Run. The holder must be unique to this cleaner.
func New(db *sql.DB, statements *dialect.Statements, holder string, config Config, logger watermill.LoggerAdapter) *Cleaner {
	config.setDefaults()
	c := &Cleaner{db: db, statements: statements, holder: holder, config: config, logger: logger}
	if config.DeadLetters != 0 {
		c.add("dead letters", c.look(), letterPurge(statements, config.DeadLetters, min(letterBatch, config.Batch)).work)
	}
	if config.History {
		c.add("history", c.look(), historyPurge(statements, min(historyBatch, config.Batch)).work)
	}
	if config.Failures > 0 {
		c.addTask(Purge("failures", config.Failures, statements.PurgeFailures))
	}
	if config.Claims > 0 {
		c.add("claims", c.restFor(config.Claims), walkClaims(config.Claims, config.Batch))
	}
	if config.Unattended > 0 {
		c.add("unattended", watchIntervals*config.Interval, newWatch(config.Unattended).work)
	}
	if config.UniqueKeys {
		c.add("unique keys", c.rest(), walkUniqueKeys(min(uniqueKeyBatch, config.Batch)))
	}
	for _, other := range config.Others {
		c.addTask(other)
	}
	return c
}

func (c *Cleaner) add(name string, interval time.Duration, work work) {
	c.tasks = append(c.tasks, &task{name: name, interval: interval, work: work})
}

func (c *Cleaner) addTask(t Task) {
	interval := c.config.Interval
	if t.retention > 0 {
		interval = c.restFor(t.retention)
	}
	c.add(t.name, interval, t.work)
}

// rest is the longest pause of a task, and restFor that of one that deletes rows after this time.
func (c *Cleaner) rest() time.Duration { return restIntervals * c.config.Interval }

func (c *Cleaner) restFor(retention time.Duration) time.Duration {
	return min(max(retention/walksPerRetention, c.config.Interval), c.rest())
}

// look is the longest pause of a task whose time operators may change.
func (c *Cleaner) look() time.Duration { return lookIntervals * c.config.Interval }

// Run cleans until ctx ends, and then hands its tasks to other processes. If the database is
// unavailable, or has no tables yet, it tries again at each interval.
func (c *Cleaner) Run(ctx context.Context) {
	if len(c.tasks) == 0 {
		return
	}
	defer c.leave(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		for _, task := range c.tasks { // one step each, so that no task waits for another one's backlog
			if ctx.Err() != nil { // each might wait for a database that does not answer
				return
			}
			c.turn(ctx, task)
		}
		timer.Reset(c.wait())
	}
}

// Round performs a step of each task now, due or not, for callers that do not wait for
// [Cleaner.Run]. It reports whether all steps worked.
func (c *Cleaner) Round(ctx context.Context) bool {
	worked := true
	for _, task := range c.tasks {
		task.stepAt = time.Time{}
		c.turn(ctx, task)
		worked = worked && !task.failing
	}
	return worked
}

// turn renews the lease of a task and performs a step of it, if they are due.
func (c *Cleaner) turn(live context.Context, task *task) {
	if time.Now().Before(task.next()) {
		return
	}
	ctx, cancel := finishing(live)
	defer cancel()
	err := c.checkFit(ctx)
	if err == nil && !time.Now().Before(task.holdAt) {
		err = c.hold(ctx, task)
	}
	if err == nil && task.held && !time.Now().Before(task.stepAt) {
		err = c.step(ctx, task)
	}
	if errors.Is(err, errLeft) {
		c.giveUp(ctx, task)
		c.logger.Debug("Postbox leaves a maintenance task to other processes: "+err.Error(), watermill.LogFields{"task": task.name})
		return
	}
	if err != nil {
		task.held = false // or still held: the next try to take it shows
		task.holdAt = time.Now().Add(c.config.Interval)
	}
	c.report(task, err)
}

// checkFit prevents a cleaner from writing to a database that cannot be used. A session without
// autocommit would keep rows locked.
func (c *Cleaner) checkFit(ctx context.Context) error {
	if c.fit {
		return nil
	}
	err := c.statements.CheckServer(ctx, c.db)
	c.fit = err == nil
	return err
}

// finishing returns a context for a step, which may continue for a while when the cleaner stops. A
// statement that is cancelled may still be on its way to the server. If it takes a task, it could
// arrive after the statement that hands the task back.
func finishing(live context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(live), spool.StatementTimeout)
	release := context.AfterFunc(live, func() {
		grace := time.AfterFunc(leaveTimeout, cancel)
		context.AfterFunc(ctx, func() { grace.Stop() })
	})
	return ctx, func() {
		release()
		cancel()
	}
}

// report logs the first of several errors in a row.
func (c *Cleaner) report(task *task, err error) {
	fields := watermill.LogFields{"task": task.name}
	err = dialect.HintAtPooler(dialect.HideAddress(err))
	switch {
	case err == nil && task.failing:
		c.logger.Info("Postbox cleans up again", fields)
	case err != nil && (task.failing || c.statements.Kind.Classify(err) == dialect.Conflict): // the next turn tries again
		c.logger.Debug("Postbox cannot clean up: "+err.Error(), fields)
	case err != nil:
		c.logger.Error("Postbox cannot clean up and goes on trying", err, fields)
	}
	task.failing = task.failing && err != nil || err != nil && c.statements.Kind.Classify(err) != dialect.Conflict
}

// wait returns how long no task is due.
func (c *Cleaner) wait() time.Duration {
	next := c.tasks[0].next()
	for _, task := range c.tasks[1:] {
		if at := task.next(); at.Before(next) {
			next = at
		}
	}
	return max(time.Until(next), 0)
}

// leave hands back the tasks that this process holds.
func (c *Cleaner) leave(ended context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ended), leaveTimeout)
	defer cancel()
	for _, task := range c.tasks {
		if task.taken {
			c.handBack(ctx, task)
		}
	}
}

// chore returns the identity of a task of this process in the database.
func (c *Cleaner) chore(task *task) dialect.Chore {
	return dialect.Chore{Name: task.name, Holder: c.holder}
}

func (c *Cleaner) handBack(ctx context.Context, task *task) {
	if err := spool.Run(ctx, c.db, c.statements.TakeChore(c.chore(task), 0)); err != nil {
		c.logger.Debug("Postbox could not hand back a task, whose lease will expire: "+err.Error(),
			watermill.LogFields{"task": task.name})
	}
}

// errLeft wraps the error of a task that this process lacks the right to perform, but other
// processes may have it.
var errLeft = errors.New("this process cannot do it")

// AsLeft marks an error that shows that this process lacks a right, such as to read the table of
// messages.
func AsLeft(err error, statements *dialect.Statements) error {
	if dialect.Coded(err) && statements.Kind.Classify(err) == dialect.Other {
		return fmt.Errorf("%w: %w", errLeft, err)
	}
	return err
}

// giveUp hands back such a task. This process tries to take it again much later.
func (c *Cleaner) giveUp(ctx context.Context, task *task) {
	c.handBack(ctx, task)
	task.held, task.taken, task.holdAt = false, false, time.Now().Add(givenUp)
}

// delete runs one bounded delete and returns how many rows it removed.
func (c *Cleaner) delete(ctx context.Context, query dialect.Query) (removed int, err error) {
	err = spool.InTx(ctx, c.db, c.statements, func(tx *sql.Tx) error {
		n, err := spool.Affected(spool.Directly(ctx, tx, query))
		removed = int(n)
		return err
	})
	return removed, err
}

// failed wraps an error of a task.
func (ch *task) failed(what string, err error) error {
	return spool.Wrap(fmt.Sprintf("%s task %q", what, ch.name), err)
}
