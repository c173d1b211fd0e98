package dialect

import "slices"

// allReady reports whether all rows are ready.
func allReady(rows []Row) bool {
	return !slices.ContainsFunc(rows, func(r Row) bool { return r.State != StateReady })
}

// wereReady reports whether all messages were ready before they were handled.
func wereReady(refs []Ref) bool {
	return !slices.ContainsFunc(refs, func(r Ref) bool { return r.State != StateReady })
}
