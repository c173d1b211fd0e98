package middleware

// Watched is how many messages that failed an inbox watches.
func Watched(i *Inbox) int { return int(i.swallowed.count.Load()) }
