package main

import "slices"

const module = "github.com/postbox-go/watermill-postbox/"

// safeguards are what the guarantees rest on. What notices here is named again in
// docs/dev/proof.md.
var safeguards = slices.Concat(onServers(slices.Concat(ofTheInbox, ofTheSettlement, ofTheEngine)), ofTheInbox, ofTheSettlement, ofTheEngine, ofLanes, ofTheLog, ofTransactions, ofUniqueKeys, ofOutages, ofRefusals)
