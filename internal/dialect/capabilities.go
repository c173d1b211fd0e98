package dialect

// Capabilities are the differences between databases. Code outside this package asks for
// capabilities and not for the [Kind].
type Capabilities struct {
	// Name is the common name of the database.
	Name string
	// OneWriter: one transaction at a time writes, and locks the whole database.
	OneWriter bool
	// Listens: the database has LISTEN and NOTIFY.
	Listens bool
	// Tails: the log of the database can be read.
	Tails bool
	// ErrorsEndTransactions: after an error, a transaction accepts only a rollback.
	ErrorsEndTransactions bool
	// RollsBackWhenFull: if disk or memory is full, the database may roll back a transaction by
	// itself.
	RollsBackWhenFull bool
}

var capabilities = map[Kind]Capabilities{
	PostgreSQL: {Name: "PostgreSQL", Listens: true, Tails: true, ErrorsEndTransactions: true},
	MySQL:      {Name: "MySQL"},
	SQLite:     {Name: "SQLite", OneWriter: true, RollsBackWhenFull: true},
}

// Can returns the capabilities of a kind of database. An unknown kind has none.
func (k Kind) Can() Capabilities { return capabilities[k] }
