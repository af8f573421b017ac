# The project's commands. `make help` lists them. Each one first installs what it lacks.
# Variables: CARGO (cargo), PREFIX (where `make install` puts things), FUZZ_SECONDS (per target).

CARGO ?= cargo
PREFIX ?= $(HOME)/.local
FUZZ_SECONDS ?= 60
BUILT = $(or $(CARGO_TARGET_DIR),target)/release

export CARGO FUZZ_SECONDS

.DEFAULT_GOAL := help
.PHONY: help demo test bench bench-peers fmt lint fuzz install clean

help: ## list the commands
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F'\t' '{ printf "make %-11s %s\n", $$1, $$2 }'

demo: ## move real files through emulated paths on this machine, without root
	@scripts/setup build
	$(CARGO) run --locked --release -p gtp-cli --bin gtp -- demo

test: ## format check, clippy, all tests (as root: those that need namespaces too)
	@scripts/setup test
	@scripts/test

bench: ## measure the hot paths
	@scripts/setup build
	$(CARGO) bench --locked --workspace

bench-peers: ## GTP beside its peers between two namespaces (root): table, JSON and page
	@scripts/bench-peers

fmt: ## format the source
	$(CARGO) fmt --all

lint: ## format check, clippy and the repository's own lint, without the other tests
	@scripts/setup build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) run --locked --quiet -p tidy

fuzz: ## coverage-guided fuzzing of every decoder, FUZZ_SECONDS each
	@scripts/setup fuzz
	@scripts/fuzz

install: ## install gtp, gtp-lab, libgtp and its header beneath PREFIX
	@scripts/setup build
	$(CARGO) install --locked --path crates/gtp-cli --root "$(PREFIX)"
	$(CARGO) install --locked --path crates/gtp-lab --root "$(PREFIX)"
	$(CARGO) build --locked --release -p libgtp -p gtp-preload
	install -d "$(PREFIX)/lib" "$(PREFIX)/include"
	install -m 644 crates/libgtp/include/gtp.h "$(PREFIX)/include/gtp.h"
	install -m 644 "$(BUILT)/libgtp_preload.so" "$(PREFIX)/lib/libgtp_preload.so"
	install -m 644 "$(BUILT)/libgtp_c.so" "$(PREFIX)/lib/libgtp.so.0"
	install -m 644 "$(BUILT)/libgtp_c.a" "$(PREFIX)/lib/libgtp.a"
	ln -sf libgtp.so.0 "$(PREFIX)/lib/libgtp.so"
	@echo "Installed in $(PREFIX)/bin; see README.md for completions and manual pages."

clean: ## remove build products
	$(CARGO) clean
