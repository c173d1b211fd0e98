package checker

// OracleNames are the names of all oracles.
func OracleNames() []string {
	names := make([]string, len(oracles))
	for n, o := range oracles {
		names[n] = o.name
	}
	return names
}
