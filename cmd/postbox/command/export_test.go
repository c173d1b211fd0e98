package command

// The exit codes, by name.
const (
	ExitOK      = codeOK
	ExitError   = codeError
	ExitUsage   = codeUsage
	ExitFound   = codeFound
	ExitStopped = codeStopped
)
