package dashboard

import (
	"maps"
	"slices"
)

// Actions are the names of all routes that change something or lead to a change, with whether they
// need the right to edit.
func (h *Handler) Actions() map[string]bool {
	actions := map[string]bool{}
	for name, r := range h.routes {
		if r.needs != toRead {
			actions[name] = r.needs == toEdit
		}
	}
	return actions
}

// Routes are the names of all routes, and whether each changes something.
func (h *Handler) Routes() map[string]bool {
	routes := map[string]bool{}
	for name, r := range h.routes {
		routes[name] = r.changes
	}
	return routes
}

// FilterFields are the fields of an address that choose dead letters or messages.
func FilterFields() []string {
	fields := slices.Concat(filterFields, messageFields)
	slices.Sort(fields)
	return slices.Compact(fields)
}

// FilterNames are the fields that the page of a confirmation can name.
func FilterNames() []string { return slices.Sorted(maps.Keys(filterNames)) }

// The functions that show values from messages, and read names from addresses.
var (
	Escaped    = escaped
	Visible    = visible
	Unescaped  = unescaped
	IndentJSON = indentJSON
	Cut        = cut
	Short      = short
	Span       = span
	Number     = number
	AmountOf   = amountOf
)

// Idle says that no page asks the database.
func (h *Handler) Idle() bool { return len(h.slots) == 0 }

// Forget makes the next page count again.
func (h *Handler) Forget() { h.samples.forget() }

// Amount writes a number with how accurate it is.
var Amount = amount
