package drain

// Applied returns which settings of operators the drainer has applied: whether it is paused, and
// how many batches it runs at most. It also returns how many messages are in memory and do not run:
// the drainer forgets them with each change.
func (d *Drainer) Applied() (paused bool, most, waiting int) {
	now := d.scheduler.Snapshot()
	return now.Paused, now.Workers, len(now.Messages) - now.Running
}
