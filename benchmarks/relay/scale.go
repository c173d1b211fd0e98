package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// What each forwarder of a fleet is given: with a broker that takes so long, and so many calls at a
// time, it is the broker that limits it, also where four of them share two cores with the database.
const (
	fleetTakes       = 5 * time.Millisecond
	fleetConcurrency = 16
	fleetSettles     = 3 * time.Second // until the lanes are shared out
	fleetWindow      = 3 * time.Second
	fleetMost        = 4
)

// PerProcess is the rate of a fleet by the number of its processes.
const PerProcess measure.Metric = "msg/s a process"

// Scale drains one outbox with 1, 2 and 4 forwarders, each a process.
func Scale() measure.Scenario {
	return measure.Scenario{
		Name:       "scale",
		About:      fmt.Sprintf("1, 2 and 4 forwarder processes with a publisher that takes 5 ms, %d calls at a time", fleetConcurrency),
		MaxRounds:  3,
		Axis:       "processes",
		Contenders: measure.Curve([]int{1, 2, fleetMost}, runFleet),
		Targets: []measure.Target{
			{Name: "scale", Ours: "2", Other: "1", Metric: PerProcess, AtLeast: 0.9},
			{Name: "scale", Ours: "4", Other: "1", Metric: PerProcess, AtLeast: 0.9},
		},
	}
}

func runFleet(ctx context.Context, stage *measure.Stage, processes int) (err error) {
	seconds := int((fleetSettles + fleetWindow) / time.Second)
	perSecond := processes * fleetConcurrency * int(time.Second/fleetTakes)
	if err := fillOurs(ctx, stage.Setup, perSecond*(seconds+1)); err != nil {
		return err
	}
	path, remove, err := buildChild(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	var fleet []*child
	defer func() {
		for _, process := range fleet {
			_ = process.input.Close()
		}
	}()
	for range processes {
		process, err := startChild(ctx, path, stage.DSN, fleetTakes, fleetConcurrency)
		if err != nil {
			return err
		}
		fleet = append(fleet, process)
	}
	if _, err := published(fleet, time.Now().Add(fleetSettles)); err != nil {
		return err
	}
	before, err := published(fleet, time.Now())
	if err != nil {
		return err
	}
	stage.Elsewhere = true
	if err := stage.Start(ctx); err != nil {
		return err
	}
	after, err := published(fleet, time.Now().Add(fleetWindow))
	if err != nil {
		return err
	}
	if err := stage.Stop(int(after - before)); err != nil {
		return err
	}
	stage.Record(PerProcess, float64(after-before)/fleetWindow.Seconds()/float64(processes))
	for _, process := range fleet {
		_, stopErr := process.stop()
		err = errors.Join(err, stopErr)
	}
	return err
}

// published reads what the processes tell until a time, and returns how much they had published by
// then.
func published(fleet []*child, until time.Time) (int64, error) {
	for {
		total := int64(0)
		for _, process := range fleet { // they all write each tick
			if err := process.next(); err != nil {
				return 0, err
			}
			total += process.last
		}
		if !time.Now().Before(until) {
			return total, nil
		}
	}
}
