package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What users ask, and where the answer stands. A page that is renamed or a section that is moved
// must take its question along.
var questions = []struct{ question, answer string }{
	{"When should I not use it?", "outbox.md#when-to-use-it"},
	{"How do I install it in a service that runs?", "adopt.md#a-service-without-an-outbox"},
	{"I have an outbox table of my own", "adopt.md#an-outbox-table-of-your-own"},
	{"How do I test my service without servers?", "testing.md#a-handler"},
	{"How do I publish in a transaction of GORM?", "transactions.md#gorm"},
	{"I work with a pool of pgx", "pgx.md#the-transaction"},
	{"And bun, ent, sqlx or sqlc?", "transactions.md#bun"},
	{"Can one outbox serve two databases?", "scaling.md#several-outboxes-several-databases"},
	{"Can each tenant have a schema?", "scaling.md#several-outboxes-several-databases"},
	{"How do I use the CQRS component?", "cqrs.md#publish"},
	{"Does it work with protobuf?", "cqrs.md#a-group-and-a-queue"},
	{"How do I delay a message by an hour?", "coming-from-watermill.md#delays"},
	{"How do I take in webhooks once?", "retries.md#what-an-inbox-does-before-it-returns-an-error"},
	{"The message has an id other than its UUID", "inbox.md#settings"},
	{"How do I handle 500 messages in one call?", "deferred.md#settings"},
	{"How do I run something at midnight in Berlin?", "deferred.md#batches-and-schedules"},
	{"How often is a message tried?", "retries.md#how-long-until-a-message-is-dead"},
	{"How do I allow ten calls a second over six pods?", "limits.md#how"},
	{"How large may a message be?", "outbox.md#settings-of-the-publisher"},
	{"What is the partition key on Kafka?", "brokers.md#what-becomes-of-order-and-of-a-failed-message"},
	{"How is RabbitMQ set up?", "brokers.md#what-becomes-of-order-and-of-a-failed-message"},
	{"Does it work with NATS, Redis or SNS?", "brokers.md#which-settings-make-it-safe"},
	{"How do I get an alert about dead letters?", "operations.md#set-up-the-alerts-and-the-dashboard"},
	{"How do I requeue all dead letters with one error?", "dead-letters.md#many-at-a-time"},
	{"How do I replay last Tuesday?", "dead-letters.md#replay-from-the-history"},
	{"How do I run it on Kubernetes?", "kubernetes.md#create-the-tables-in-a-job-before-the-rollout"},
	{"What is the order of a rolling upgrade?", "upgrade.md#the-order-of-a-rollout"},
	{"Does it work behind PgBouncer?", "poolers.md#settings"},
	{"What happens in a failover of the database?", "guarantees.md#when-the-database-fails-over-is-restored-or-is-copied"},
	{"Does the table bloat?", "scaling.md#vacuum"},
	{"May I copy production's database to staging?", "security.md#a-copy-of-the-database"},
	{"How do I delete or encrypt personal data?", "privacy.md#delete-the-data-of-one-customer"},
	{"What does it cost?", "costs.md#a-message"},
	{"How do I see what it does?", "metrics.md#what-each-process-reports"},
	{"What happens in a crash at any moment?", "guarantees.md#what-happens-in-a-crash"},
	{"Which rights does the database role need?", "security.md#roles"},
}

func TestQuestions_are_answered_by_a_section_that_exists(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/questions.md")
	require.NoError(t, err)
	answers := map[string]string{}
	for _, part := range strings.Split(string(text), "\n### ")[1:] {
		question, answer, _ := strings.Cut(part, "\n")
		answer, _, _ = strings.Cut(answer, "\n## ")
		answers[question] = answer
	}
	require.Len(t, answers, len(questions), "each question is in the list above")
	for _, q := range questions {
		require.Contains(t, answers[q.question], "("+q.answer+")", q.question)
		page, section, found := strings.Cut(q.answer, "#")
		require.True(t, found, q.question)
		require.Contains(t, headingsOf(t, filepath.Join("docs", page)), section, q.question)
	}
}

// The index names each page for users, and each for developers, once at least.
func TestIndex_names_each_page(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("docs/README.md")
	require.NoError(t, err)
	linked := map[string]bool{"docs/README.md": true}
	for _, found := range regexp.MustCompile(`\]\(([^)#]+\.md)`).FindAllStringSubmatch(string(index), -1) {
		linked[filepath.Join("docs", found[1])] = true
	}
	for _, page := range pages(t) {
		require.True(t, linked[page], "docs/README.md has no link to %s", page)
	}
}
