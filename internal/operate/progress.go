package operate

// Progress says how far an action on many things has got, after each of its transactions, and now and then while it waits.
type Progress struct {
	Done    int    // changed so far, all of it committed
	Skipped int    // chosen, and not changeable
	Waits   string // for what it waits; empty while it works
}
