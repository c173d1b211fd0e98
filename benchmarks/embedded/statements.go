package embedded

// The tables and statements of the business, and of what is done by hand.
const (
	createOrders = `CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, amount INTEGER NOT NULL)`
	insertOrder  = `INSERT INTO orders (customer, amount) VALUES (?, ?)`

	createAccount = `CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)`
	insertAccount = `INSERT INTO account (id, balance) VALUES (1, 0)`
	updateAccount = `UPDATE account SET balance = balance + 1 WHERE id = 1`

	createOutbox = `CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL, message_id TEXT NOT NULL, metadata BLOB NOT NULL, payload BLOB NOT NULL)`
	insertOutbox = `INSERT INTO outbox (topic, message_id, metadata, payload) VALUES (?, ?, ?, ?)`
	readOutbox   = `SELECT id, message_id, metadata, payload FROM outbox WHERE id > ? ORDER BY id LIMIT 500`
	deleteOutbox = `DELETE FROM outbox WHERE id = ?`
	deletePage   = `DELETE FROM outbox WHERE id <= ?`

	createQueue = `CREATE TABLE queue (id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT NOT NULL, metadata BLOB NOT NULL, payload BLOB NOT NULL)`
	insertQueue = `INSERT INTO queue (message_id, metadata, payload) VALUES (?, ?, ?)`
	readQueue   = `SELECT id, message_id, metadata, payload FROM queue WHERE id > ? ORDER BY id LIMIT 100`
	deleteQueue = `DELETE FROM queue WHERE id <= ?`

	createProcessed = `CREATE TABLE processed (consumer TEXT, message_id TEXT, PRIMARY KEY (consumer, message_id)) WITHOUT ROWID`
	claim           = `INSERT INTO processed (consumer, message_id) VALUES (?, ?) ON CONFLICT DO NOTHING`
)
