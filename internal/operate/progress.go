package operate

// Progress says how far an action on many things has got, after each of its transactions.
type Progress struct {
	Done    int // changed so far, all of it committed
	Skipped int // chosen, and not changeable
}
