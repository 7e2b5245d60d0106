# assay needs Go and make; `make help` lists the targets.

GO        ?= go
FUZZTIME  ?= 20s
SMOKETIME ?= 5s
SOAK      ?= 200
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
REVISION  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS   := -s -w -X assay/internal/cli.version=$(VERSION) -X assay/internal/cli.revision=$(REVISION)
# Programs of this file's own; their versions are pinned here.
GOLANGCI  ?= $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.DEFAULT_GOAL := build
.PHONY: build quickstart test race lint fuzz soak bench bench-archive bench-client real ci help

build: ## bin/assay, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/assay ./cmd/assay

quickstart: build ## build, then run the shipped quickstart into ./.assay
	bin/assay run quickstart

test: ## every test
	$(GO) test ./...

race: ## every test under the race detector
	$(GO) test -race ./...

lint: ## gofmt, go vet, golangci-lint
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "gofmt these: $$unformatted"; exit 1; fi
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(GOLANGCI) run ./...

fuzz: ## every fuzz target for FUZZTIME (20s)
	GO=$(GO) bash .ci/fuzz $(FUZZTIME)

soak: ## kill a run at each of its writes, and at random SOAK times (200); each fault at each write of the store
	ASSAY_SOAK=$(SOAK) ASSAY_EXHAUSTIVE=1 $(GO) test -run Kill -timeout 4h -count=1 -v ./internal/crashtest
	ASSAY_EXHAUSTIVE=1 $(GO) test -run 'TestFaults|TestTenWriters|TestLifeOfAStore' -count=1 -v ./archive

bench: ## every benchmark once
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

bench-archive: ## the archive against cp, openssl, restic, borg, find (BENCH_FULL=1: full size)
	GO=$(GO) bench/archive.sh

bench-client: ## how exact the load client is (BENCH_ROUNDS=5 for figures to publish; PEERS=1: aiperf and guidellm beside)
	$(GO) run ./bench/client
	$(if $(PEERS),GO=$(GO) bench/client/peers.sh)

real: build ## a real engine and model, run and verified (installed into .real: minutes of compiling, 1 GB)
	GO=$(GO) bash .ci/real

ci: lint test race ## what every change must pass
	bash .ci/fuzz $(SMOKETIME)
	$(MAKE) build
	bash .ci/e2e

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "%-13s %s\n", $$1, $$2}' Makefile
