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
// An action on one thing is one transaction, and an action on many has one for up to 100 of them.
// If the program ends in the middle, what it has done stays done. The same command, started again,
// goes on with the rest; a replay does with the cursor that it printed.
//
// # Exit codes
//
//   - 0: the command has done what it was asked for.
//   - 1: an error, for example of the database. An action on many may have been done in part, and
//     the output says how far it got.
//   - 2: a flag, an argument or the configuration is wrong, or a confirmation is needed and there
//     is no terminal. Nothing was done.
//   - 3: the command worked, and the answer is no. For example, a check failed, doctor has found
//     something, an outbox is not empty, or migrations are missing.
//   - 4: the operator stopped the command, by a signal or by an answer. The output says how far it
//     got.
package command
