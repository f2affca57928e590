# Everything runs from here, in a virtual environment of its own. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup sim test coverage formal mutate faults verilog synth figures docs lint clean distclean

PYTHON ?= python3
JOBS ?= 2
STAMP := .venv/.installed
BIN := .venv/bin

help: ## what can be made
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18
	@echo "  Options: PYTHON=python3.12 for another interpreter (3.11 or newer), JOBS=4 for more processes in make test, faults and figures."

setup: $(STAMP) ## make .venv with the t3rtl command in it, all packages from PyPI
	@echo "ready: $(BIN)/t3rtl"
	@command -v iverilog >/dev/null || echo "without iverilog (Debian: apt-get install iverilog) make test skips the four-state simulator"
	@command -v chromium >/dev/null || echo "without chromium (Debian: apt-get install chromium) make test looks at no page"
	@echo '#include <lz4.h>' | g++ -x c++ -fsyntax-only - 2>/dev/null || echo "without lz4.h (Debian: apt-get install liblz4-dev) there are no waves"

$(STAMP): pyproject.toml
	@for tool in g++ make git; do command -v $$tool >/dev/null || \
	  { echo "make setup: $$tool is not installed (Debian: apt-get install g++ make git)" >&2; exit 2; }; done
	@if [ ! -x $(BIN)/python ]; then command -v $(PYTHON) >/dev/null || \
	  { echo "make setup: $(PYTHON) is not installed (Debian: apt-get install python3 python3-venv)" >&2; exit 2; }; \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make setup: $(PYTHON) is older than 3.11; say which to use: make setup PYTHON=python3.11" >&2; exit 2; }; \
	  $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "make setup: $(PYTHON) has no venv module (Debian: apt-get install python3-venv)" >&2; exit 2; }; \
	  echo "making .venv with $$($(PYTHON) -V)"; $(PYTHON) -m venv .venv; fi
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make setup: .venv holds a Python older than 3.11; make distclean, then make setup" >&2; exit 2; }
	@echo "installing the packages of pyproject.toml (a minute or two the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Packages that only some targets need: `make formal` depends on .venv/.installed-formal, and so on.
EXTRAS := coverage docs formal report synth
comma := ,
space := $(subst ,, )

.venv/.installed-all: pyproject.toml | $(STAMP)
	@echo "installing the packages of every target"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,$(subst $(space),$(comma),$(EXTRAS))]'
	@touch $@ $(EXTRAS:%=.venv/.installed-%)

.venv/.installed-%: pyproject.toml | $(STAMP)
	@echo "installing the packages for $* (extra [$*] of pyproject.toml)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,$*]'
	@touch $@

sim: $(STAMP) ## every end-to-end scenario on the RTL; results in build/sim/results.json
	@$(BIN)/t3rtl regress --out build/sim/results.json

test: $(STAMP) ## everything quick under pytest
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile -m "not slow and not wide"

formal: .venv/.installed-formal ## proofs of every block, each with a cover run and a seeded bug; build/formal/summary.json
	@$(BIN)/python -m tb.formal --processes $(JOBS)

mutate: $(STAMP) ## mutation score of every block; score in build/mutation/summary.json; takes hours
	@$(BIN)/python -m tb.mutation --processes $(JOBS)

faults: $(STAMP) ## a campaign of fault injections (INJECTIONS=28000), goes on where it was; build/faults/summary.json
	@$(BIN)/t3rtl faults --control
	@$(BIN)/t3rtl faults --processes $(JOBS) $(if $(INJECTIONS),--injections $(INJECTIONS))

coverage: .venv/.installed-coverage ## the quick tests, on more configurations too, measured, and one page about all that is verified: build/coverage/index.html; goes on where it was
	@failed=0; T3_COVERAGE=1 $(BIN)/python -m pytest -q -p tb.coverage_resume -n $(JOBS) --dist loadfile -m "not slow" \
	  || failed=1; \
	  $(BIN)/python -m tb.coverage_page --goals || failed=1; exit $$failed

verilog: $(STAMP) ## Verilog of the preset "paper" in build/verilog
	@$(BIN)/t3rtl verilog --preset paper --out build/verilog

synth: .venv/.installed-synth ## area and timing of every block: generic, ASIC (or LIBERTY=files), ECP5; hw/synthesis/AREA.md
	@$(BIN)/t3rtl synth $(if $(LIBERTY),$(addprefix --liberty ,$(LIBERTY)),--record)

figures: .venv/.installed-report ## the paper's figures from the RTL, beside the paper's numbers, in build/figures/index.html
	@$(BIN)/t3rtl report --processes $(JOBS) --out build/figures

docs: .venv/.installed-docs ## the documentation site, from the sources: build/docs/html/index.html
	@$(BIN)/python -m tb.site

lint: $(STAMP) ## linter, formatter check, type checker
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ." >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@echo "lint: no errors"

clean: ## remove what was built (the virtual environment stays)
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find hw sim tb -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## remove the virtual environment too
	rm -rf .venv
