package main

// Kinds of activity.
const (
	purchase = "purchase"
	refund   = "refund"
	bonus    = "bonus"
)

// activity is what a user does, and what the events say.
type activity struct {
	UserID string `json:"user_id"`
	// Seq numbers the activities of a user in the order in which they were committed, from 1.
	Seq   int64  `json:"seq"`
	Kind  string `json:"kind"`
	Euros int64  `json:"euros"`
}

// Points from which on a user is in a tier.
const (
	silverFrom = 1_000
	goldFrom   = 5_000
)

// account is what the points of a user have come to. The zero value is that of a new user.
type account struct {
	points int64
	tier   int64 // 0, silver is 1 and gold 2
}

// after returns the account after an activity. No two of these rules can change places: what a
// purchase gives depends on the tier, what a bonus gives on the points, and what a refund takes on
// both.
func (a account) after(done activity) account {
	switch worth := done.Euros * (1 + a.tier); done.Kind {
	case purchase:
		a.points += worth
	case refund:
		a.points = max(0, a.points-worth)
	case bonus:
		a.points += a.points / 10
	}
	switch {
	case a.points >= goldFrom:
		a.tier = 2
	case a.points >= silverFrom:
		a.tier = 1
	default:
		a.tier = 0
	}
	return a
}
