package main

import "slices"

// onServers are safeguards of others that postbox prove has to miss, too: a run on the server of a
// user that keeps no promise must say so.
func onServers(all []safeguard) (missed []safeguard) {
	for _, s := range all {
		if slices.Contains([]string{"late-row search", "claim commits with the effect", "a failed message holds back its key", "stored before acked"}, s.name) {
			s.name += ", as postbox prove sees it"
			s.packages, s.tests = []string{module + "cmd/postbox/prove"}, "TestRun_keeps_all_promises"
			missed = append(missed, s)
		}
	}
	return missed
}
