// Package command has the commands of the program postbox. Use it to build a program of your own
// that has another driver:
//
//	func main() {
//		os.Exit(command.Execute(context.Background(), command.New(command.Options{
//			Open: func(p command.OpenParams) (*sql.DB, error) { return sql.Open("pgx", p.DSN) },
//		})))
//	}
//
// The program does with the package admin what an operator asks for, and it runs the migrations of
// the root package. docs/cli.md describes each command.
//
// # Crashes
//
// Each action is one transaction. An action on many dead letters is one transaction for each of
// them. If the program ends in the middle, the letters that it has acted on are no longer in the
// list that the filter chooses. The same command, started again, goes on with the rest.
//
// # Exit codes
//
// A program exits with [ExitOK], [ExitError], [ExitUsage], [ExitFound] or [ExitStopped].
package command
