package dialect

// Capabilities are what one database can do and another cannot. Code outside of this package asks for them and not for the [Kind], so a further database
// is one more entry in the list below.
type Capabilities struct {
	// Name is the name that people know.
	Name string
	// OneWriter: one transaction at a time writes, and has the whole database for itself.
	OneWriter bool
	// Listens: it has LISTEN and NOTIFY.
	Listens bool
	// ErrorsEndTransactions: after an error, a transaction takes nothing but a rollback.
	ErrorsEndTransactions bool
	// RollsBackWhenFull: where disk or memory is full, it may roll back a transaction by itself.
	RollsBackWhenFull bool
}

var capabilities = map[Kind]Capabilities{
	PostgreSQL: {Name: "PostgreSQL", Listens: true, ErrorsEndTransactions: true},
	MySQL:      {Name: "MySQL"},
	SQLite:     {Name: "SQLite", OneWriter: true, RollsBackWhenFull: true},
}

// Can returns the capabilities of a kind of database. One that is unknown can do nothing of it.
func (k Kind) Can() Capabilities { return capabilities[k] }
