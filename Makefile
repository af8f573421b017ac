# The project's commands. `make help` lists them. Each one first installs what it lacks.
# Variables: CARGO (cargo), PREFIX (where `make install` puts things; DESTDIR before it for packagers),
# OUT (where `make release` puts things), FUZZ_SECONDS (per target).

CARGO ?= cargo
PREFIX ?= $(HOME)/.local
FUZZ_SECONDS ?= 60
OUT ?= target/package/out
BUILT = $(or $(CARGO_TARGET_DIR),target)/dist
RELEASED = $(or $(CARGO_TARGET_DIR),target)/release
GLOBUS = $(or $(CARGO_TARGET_DIR),target)/globus

export CARGO FUZZ_SECONDS

.DEFAULT_GOAL := help
.PHONY: help demo test bench bench-peers fmt lint fuzz install globus release clean

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

install: ## install gtp, gtpd, gtp-lab, libgtp, manual pages and completions beneath PREFIX
	@scripts/setup build
	$(CARGO) build --locked --profile dist -p gtp-cli -p gtp-lab -p libgtp -p gtp-preload
	@scripts/install "$(BUILT)" "$(DESTDIR)$(PREFIX)"
	@echo "Installed beneath $(DESTDIR)$(PREFIX): gtp, gtpd, gtp-lab, libgtp, manual pages, completions."

globus: ## build the Globus XIO driver `gtp` into target/globus (needs libglobus-xio-dev)
	@scripts/setup build
	$(CARGO) build --locked --release -p libgtp
	@mkdir -p $(GLOBUS)
	@cp $(RELEASED)/libgtp_c.so $(GLOBUS)/libgtp.so.0
	$(CC) -std=c11 -D_GNU_SOURCE -Wall -Wextra -O2 -fPIC -shared -I crates/libgtp/include \
		$$(pkg-config --cflags globus-xio) globus/globus_xio_gtp_driver.c \
		$(GLOBUS)/libgtp.so.0 $$(pkg-config --libs globus-xio globus-common) -o $(GLOBUS)/libglobus_xio_gtp_driver.so
	@echo "Built $(GLOBUS)/libglobus_xio_gtp_driver.so; docs/SOCKETS.md says how GridFTP takes it."

release: ## build what is published into OUT: packages, a wheel, an image's files, checksums
	@scripts/release "$(OUT)"

clean: ## remove build products
	$(CARGO) clean
