// Package dashboard shows the outboxes, queues and dead letters of a database on web pages, and
// lets operators act on them. It is one [net/http.Handler], which a service mounts under any path,
// behind its own authentication:
//
//	operator, err := admin.New(database, admin.Config{}, logger)
//	...
//	board, err := dashboard.New(operator, dashboard.Config{Authorise: authorise}, logger)
//	...
//	mux.Handle("/ops/postbox/", http.StripPrefix("/ops/postbox", board))
//
// The program "postbox dashboard" serves the same pages without a service: see docs/dashboard.md.
//
// # Who may see and do what
//
// [Config.Authorise] says for each request who sends it, and what this user may do. It has no
// default. Everything that a request asks for is checked on the server, in one place. A request
// that changes something must come from a page of the dashboard itself: requests from pages of
// other sites are refused.
//
// # What it costs
//
// A page asks the database only while it is loaded. An open page loads itself again each
// [Config.Refresh]; operators who look at the overview at the same moment share one count. Pages
// have at most 50 rows, and show the beginning of a large payload. At most eight pages ask the
// database at a time, and none waits longer than [Config.Timeout]. If the database does not answer,
// the page says so, with status 503.
//
// The handler keeps the counts of the last hour in memory, for its charts and rates: at most 720
// samples of at most 100 outboxes and queues. They are taken while a page is open, and are lost
// with the process. A bulk action outlives its request: close the handler before the database.
package dashboard
