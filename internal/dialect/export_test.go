package dialect

// Names are those of the arguments.
func (q Query) Names() []string { return q.names }
