package drain

// Obeys says what of an operator's word the drainer has obeyed: whether it is paused, how many batches it runs at most,
// and how many messages it has in memory beside those that run, which it forgets on each word.
func (d *Drainer) Obeys() (paused bool, most, waiting int) {
	now := d.scheduler.Snapshot()
	return now.Paused, now.Limit, len(now.Messages) - now.Running
}
