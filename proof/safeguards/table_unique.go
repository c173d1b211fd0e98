package main

// ofUniqueKeys are those of the unique keys of an outbox.
var ofUniqueKeys = []safeguard{
	{
		name: "a producer waits for the transaction that has the unique key, before it looks for the message", guarantees: "G2",
		edits: []edit{{
			file: "internal/dialect/statements/postgresql.sql",
			from: "ON CONFLICT (digest) DO UPDATE SET id = u.id WHERE FALSE",
			to:   "ON CONFLICT DO NOTHING",
		}},
		packages: []string{module + "forwarder"}, tests: "unique_key_waits_for_the_transaction",
	},
	{
		name: "a message that another statement changes meanwhile is replaced", guarantees: "G2",
		edits: []edit{{
			file: "internal/dialect/unique.go",
			from: "unique.Store = p.of(\"StoreUnique\", to, \"replace\")",
			to:   "unique.Store = p.of(\"StoreUnique\", to)",
		}},
		packages: []string{module + "forwarder"}, tests: "that_changes_meanwhile",
	},
	{
		name: "messages of a unique key have an order", guarantees: "G3",
		edits: []edit{{
			file: "internal/spool/unique.go",
			from: "	if d.Key == \"\" {\n		d.Key = key\n",
			to:   "	if d.Key == \"\" && false {\n		d.Key = key\n",
		}},
		packages: []string{module + "forwarder"}, tests: "unique_key_waits|replacement",
	},
	{
		name: "a unique key that has got another message stays", guarantees: "G2",
		edits: []edit{{
			file: "internal/dialect/statements/postgresql.sql",
			from: "WHERE digest = :digest AND id = :id AND created_at = :created_at",
			to:   "WHERE digest = :digest AND (id = :id OR created_at = :created_at)",
		}},
		packages: []string{module + "internal/cleanup"}, tests: "unique_key",
	},
	{
		name: "only the first message of a new unique key is stored without a search", guarantees: "G2",
		edits: []edit{{
			file: "internal/spool/unique.go",
			from: "	delete(free, string(digest)) // from now on it has a message\n",
			to:   "",
		}},
		packages: []string{module + "forwarder"}, tests: "free_unique_key",
	},
	{
		name: "a unique key is free only if a statement has changed a row", guarantees: "G2",
		edits: []edit{{
			file: "internal/spool/unique.go",
			from: "known && n > 0\n	}\n	store :=",
			to:   "known && n >= 0\n	}\n	store :=",
		}},
		packages: []string{module + "forwarder"}, tests: "unique_key_waits",
	},
}
