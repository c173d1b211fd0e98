# The commands of this project; `make` alone lists them.
# ARGS goes to go test: make test ARGS='-run TestInbox'

SHELL := bash
BIN ?= $(CURDIR)/bin
GOLANGCI_LINT_VERSION := 2.15.0
GOLANGCI_LINT := $(BIN)/golangci-lint

# Runs a command in each module; a new one needs no entry here.
EACH_MODULE := scripts/modules each

.DEFAULT_GOAL := help
.PHONY: help demo docs-site dashboard test proof test-versions test-go-versions test-settings vulncheck test-embedded test-short fuzz crashpoints torture safeguards publishers clusters sharded bench bench-quick bench-curves bench-go soak idle overload verify lint fmt tools services

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## run the quickstart example, on SQLite
	go run -C examples ./quickstart

dashboard: ## run a shop that never stops, on SQLite, and serve its dashboard
	go run -C examples ./dashboard

test: ## run the tests with the race detector, on real databases and brokers
	POSTBOX_SERVICES_IN=memory scripts/services run -- scripts/go-test test $(ARGS)

proof: ## run the long proofs: several processes, crash points, safeguards, a short torture run
	POSTBOX_SERVICES_IN=memory scripts/services run -- scripts/go-test proof $(ARGS)

test-versions: ## run what meets the database on other versions of PostgreSQL and MariaDB, and on MySQL; ARGS='postgres-18.0.0' for one
	scripts/test-versions $(ARGS)

test-go-versions: ## build all modules and run the quick tests with the Go of go.mod and the two that Go supports; ARGS=1.27.4 for one
	scripts/test-go-versions $(ARGS)

test-settings: ## run the contract suites on databases with settings that users have; ARGS=quick for a minute's worth, ARGS='strict lax' for some
	scripts/test-settings $(ARGS)

vulncheck: ## look for known vulnerabilities in the code that is used, where the data about them can be reached
	BIN=$(BIN) scripts/vulncheck

test-embedded: ## run the tests that need no services, and say what that leaves out
	$(EACH_MODULE) go test $(ARGS) ./...
	@for variable in TEST_POSTGRES_DSN TEST_POSTGRES_LOG_DSN TEST_MYSQL_DSN TEST_AMQP_URI TEST_KAFKA_BROKERS; do \
		[ -n "$${!variable:-}" ] || echo "left out: tests that need $$variable, which make test sets"; \
	done

test-short: ## run the quick tests only
	$(EACH_MODULE) go test -short $(ARGS) ./...

fuzz: ## run each fuzz target for FUZZTIME, 10s unless set
	scripts/fuzz $(FUZZTIME)

crashpoints: ## end processes before and after each statement, broker call and handler of each flow, and judge
	@directory=$$(mktemp -d) && trap 'rm -rf "$$directory"' EXIT && go test -C proof -c -o "$$directory/crashpoints" ./crashpoints && \
		cd proof/crashpoints && POSTBOX_CRASHPOINTS=all ../../scripts/services run -- "$$directory/crashpoints" -test.parallel 8 -test.timeout 60m $(ARGS)

torture: ## break all that can break while processes work, and judge: DURATION=3m SEED=1 FAULTS=kill,pause DISTANCE=20ms
	scripts/services run -- go run -C proof ./torture \
		$(if $(DURATION),-duration $(DURATION)) $(if $(SEED),-seed $(SEED)) $(if $(FAULTS),-faults $(FAULTS)) $(if $(DISTANCE),-distance $(DISTANCE))

safeguards: ## take one safeguard out at a time, and want the tests to fail
	scripts/services run -- go run -C proof ./safeguards $(ARGS)

publishers: ## stop and start the brokers of six of Watermill's publishers, and of chains from outbox to inbox, about 15 minutes; ARGS='-only kafka' for less
	scripts/services run -- go run -C proof/publishers . $(ARGS)

clusters: ## kill leaders of Kafka on three brokers and of a RabbitMQ quorum queue on three nodes, and nodes of Galera, for DURATION each; ARGS='-only kafka' for one
	scripts/services run -- go run -C proof ./endurance clusters $(if $(DURATION),-duration $(DURATION)) $(ARGS)

sharded: ## run examples/sharded on three PostgreSQL servers and Kafka on three brokers, and kill each kind, about two minutes
	go run -C proof ./endurance sharded

bench: ## measure side by side with peers and floors, about 25 minutes; ARGS='-only inbox' for less
	scripts/services run -- go run -C benchmarks . $(ARGS)

bench-quick: ## the same, less thoroughly, about 4 minutes
	scripts/services run -- go run -C benchmarks . -quick $(ARGS)

bench-curves: ## measure the curves of docs/dev/scaling.md, about 3 minutes
	go run -C benchmarks . -set curves $(ARGS)

bench-go: ## run the benchmarks of each package on real services, benchstat-ready output
	scripts/services run -- $(EACH_MODULE) go test -run '^$$' -bench . -benchmem -p 1 -timeout 60m $(ARGS) ./...

soak: ## run the pipeline at a steady RATE for DURATION, a look each INTERVAL; fails where something rises
	scripts/services run -- go run -C proof ./endurance soak $(if $(DURATION),-duration $(DURATION)) $(if $(RATE),-rate $(RATE)) \
		$(if $(INTERVAL),-interval $(INTERVAL)) $(ARGS)

idle: ## let a forwarder that reads the log idle beside a busy server for DURATION, ten minutes unless set; fails if the log that is kept for it rises
	scripts/services run -- go run -C proof ./endurance idle $(if $(DURATION),-duration $(DURATION)) $(ARGS)

overload: ## offer ten times the capacity for DURATION, a minute unless set, and let it recover; fails where memory grows
	scripts/services run -- go run -C proof ./endurance overload $(if $(DURATION),-duration $(DURATION)) $(ARGS)

verify: ## check formatting, go vet, go.mod and generated code
	scripts/amqp-v3 check
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted:"; echo "$$unformatted"; exit 1; }
	$(EACH_MODULE) go vet ./...
	$(EACH_MODULE) go mod tidy -diff

lint: tools ## run the linters
	$(EACH_MODULE) $(GOLANGCI_LINT) run ./...

fmt: tools ## format the code and its imports
	$(EACH_MODULE) $(GOLANGCI_LINT) fmt ./...

tools: ## install the linters into ./bin, unless they are there
	@[ "$$($(GOLANGCI_LINT) version --short 2>/dev/null)" = "$(GOLANGCI_LINT_VERSION)" ] || \
		GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(GOLANGCI_LINT_VERSION)

docs-site: ## build the site of the documents into ./site, or TO, and check its links
	scripts/docs-site $(TO)

services: ## a shell with the services running, or CMD in it
	scripts/services run -- $(SHELL) $(if $(CMD),-c "$$CMD")
