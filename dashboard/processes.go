package dashboard

import (
	"context"

	"github.com/postbox-go/watermill-postbox/admin"
)

// processesView says which processes share each outbox and queue.
type processesView struct {
	Queues []processesOf
}

type processesOf struct {
	Target  admin.Target
	Lanes   int
	Members []admin.Member
	// Free is the number of lanes that no process holds, and Left are those of them that a process
	// did not hand back.
	Free, Held int
	Left       []admin.Lane
}

// maxProcesses is how many processes, and how many lanes, of an outbox or a queue the page shows.
const maxProcesses = 50

func (h *Handler) processes(ctx context.Context, q *request) (any, error) {
	target, one := q.optionalTarget()
	targets, err := []admin.Target{target}, error(nil)
	if !one {
		targets, err = h.targets(ctx)
	}
	if err != nil {
		return nil, err
	}
	var view processesView
	for _, target := range targets {
		lanes, members, err := h.admin.Lanes(ctx, target)
		if err != nil {
			return nil, err
		}
		of := processesOf{Target: target, Lanes: len(lanes), Members: members[:min(len(members), maxProcesses)]}
		for _, lane := range lanes {
			switch {
			case lane.Held:
				of.Held++
			case lane.Holder != "" && len(of.Left) < maxProcesses:
				of.Left = append(of.Left, lane)
			}
		}
		of.Free = len(lanes) - of.Held
		view.Queues = append(view.Queues, of)
	}
	return view, nil
}
