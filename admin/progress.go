package admin

// Progress says how far an action on many things has got. It is reported after each transaction, by
// the goroutine that runs the action, which goes on when the function returns.
type Progress struct {
	// Done is the number of things that the action has changed so far. They stay changed, whatever
	// happens next.
	Done int
	// Skipped is the number of things that match the filter and cannot be changed. Those that
	// another operator has changed meanwhile do not count. A replay skips messages whose metadata
	// cannot be decoded, or whose retention ended.
	Skipped int
	// Cursor is the position of the last message of a replay. With it as [Filter.After]
	// another call goes on. It is empty with the error [postbox.ErrCommitUnknown]: the last
	// transaction may have been committed, and the entry of [Admin.Audit] has the right cursor.
	// Other actions have none.
	Cursor string
}

// reporting returns the function that reports progress; without one, or with nil, nothing is
// reported.
func reporting(progress []func(Progress)) func(Progress) {
	return func(p Progress) {
		for _, report := range progress {
			if report != nil {
				report(p)
			}
		}
	}
}
