package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// outcome counts what must be, and then what must not.
type outcome struct {
	sales, reported, culprits, reports, batches, madeUp, duplicates int

	lost, twice, wrongDay, early, wrongTotals, wronglyDead, left, missing int
}

// verify prints the reports, and returns an error where they are not what they should be.
func (a *app) verify(ctx context.Context) error {
	b, err := a.readBooks(ctx)
	if err != nil {
		return err
	}
	for _, id := range sortedKeys(b.dead) {
		a.say("dead letter: sale %s, %s", id, b.dead[id])
	}
	for _, of := range b.reports.sorted() {
		total := b.reports[of]
		a.say("report of %s: %3d sales, %8.2f %s", time.UnixMicro(of.midnight).In(a.zone).Format(time.DateTime),
			total.sales, float64(total.cents)/100, of.currency)
	}
	o := b.outcome(a.calendar, a.restarted)
	o.duplicates = a.post.duplicates()
	a.say("%s", o)
	return o.verdict()
}

// outcome compares the reports with the sales.
func (b books) outcome(days calendar, restarted time.Time) (o outcome) {
	o.sales, o.batches = len(b.sales), int(b.batches)
	o.left, o.missing = b.queue.Pending, o.sales-b.queue.Written // and that is what is pending, done and dead
	expected, madeUp, midnights := totals{}, map[time.Time]bool{}, map[int64]bool{}
	for id, sold := range b.sales {
		_, dead := b.dead[id]
		if wrong := sold.Cents <= 0; dead != wrong {
			o.wronglyDead++
		} else if wrong {
			o.culprits++
		}
		in := b.lines[id]
		switch {
		case len(in) > 0:
			o.reported++
		case !dead:
			o.lost++
		}
		if len(in) > 1 {
			o.twice++
		}
		for _, midnight := range in {
			expected.add(midnight, sold)
			if !midnight.Equal(days.endOfDay(b.stored[id])) {
				o.wrongDay++
			}
			if b.done[id].Before(midnight) {
				o.early++
			}
			if done := b.done[id]; midnight.Before(restarted) && done.After(restarted) && done.Before(days.endOfDay(restarted)) {
				madeUp[midnight] = true
			}
		}
	}
	for of, total := range b.reports {
		midnights[of.midnight] = true
		if expected[of] != total {
			o.wrongTotals++
		}
	}
	o.reports, o.madeUp = len(midnights), len(madeUp)
	o.wrongTotals += max(0, len(expected)-len(b.reports)) // those that are missing
	return o
}

// String returns the last line of the program.
func (o outcome) String() string {
	return fmt.Sprintf("RESULT sales=%d reported=%d culprits=%d reports=%d made_up=%d duplicates_absorbed=%d "+
		"lost=%d twice=%d wrong_day=%d early=%d wrong_totals=%d wrongly_dead=%d left=%d missing=%d",
		o.sales, o.reported, o.culprits, o.reports, o.madeUp, o.duplicates,
		o.lost, o.twice, o.wrongDay, o.early, o.wrongTotals, o.wronglyDead, o.left, o.missing)
}

// errNotMadeUp may also mean that the machine is too slow for days that are so short.
var errNotMadeUp = errors.New("no missed report was made at once when the service was there again")

// verdict returns what is wrong.
func (o outcome) verdict() error {
	var problems []error
	for _, must := range []struct {
		hold bool
		or   error
	}{
		{o.lost == 0, errors.New("sales are in no report")},
		{o.twice == 0, errors.New("sales are reported twice")},
		{o.wrongDay == 0, errors.New("sales are in the report of another day than the one on which they were stored")},
		{o.early == 0, errors.New("sales were reported before midnight")},
		{o.wrongTotals == 0, errors.New("reports are not the sum of their sales")},
		{o.wronglyDead == 0, errors.New("dead letters are not just the wrong sales")},
		{o.left == 0, errors.New("sales are left in the queue")},
		{o.missing == 0, errors.New("the queue has another number of sales, pending, done and dead, than were sold")},
		{o.reported+o.culprits == o.sales, errors.New("reported sales and wrong ones do not add up to all sales")},
		{o.culprits > 0, errors.New("no sale was wrong, so that was not tried")},
		{o.batches > 1, errors.New("no day took more than one batch, so that was not tried")},
		{o.madeUp > 0, errNotMadeUp},
		{o.duplicates > 0, errors.New("no sale was delivered twice, so that was not tried")},
	} {
		if !must.hold {
			problems = append(problems, must.or)
		}
	}
	return errors.Join(problems...)
}
