# Everything a newcomer runs. `make demo` and `make test` set themselves up on a fresh Debian
# machine as root, with Python, make and git there.
.PHONY: aws-smoke demo test lint install lab-clean setup docs golden mutate

SHELL := /bin/bash
VENV := .venv
RUN := $(VENV)/bin

setup:
	@scripts/setup

install: setup
	@$$(scripts/uv) sync --quiet --frozen --all-extras

demo: install
	@scripts/demo

# Two cheap instances of a REAL account, for some cents; asks first. Needs AWS credentials.
aws-smoke: install
	@scripts/aws-smoke

test: install lint
	@$(RUN)/pytest

lint: install
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check .
	@$(RUN)/mypy
	@$(RUN)/lint-imports --no-cache
	@scripts/lint-shell

# Generated pages: the CLI reference, the file references, the tables of diagnostics, modes, presets.
docs: install
	@$(RUN)/python -m config.reference
	@$(RUN)/python -m cli.reference
	@$(RUN)/python -m engine.reference

# Golden files as the code makes them now; prints what changed, for a review (tests/README.md).
golden: install
	@$(RUN)/python -m tests.golden

# Mutation testing of the pure modules, minutes to an hour: how much would the tests not notice?
mutate: install
	@$(RUN)/python -m tests.mutations --sample $(or $(SAMPLE),300)

# What a lab leaves that was killed: machines, mounts, bridge, rules.
lab-clean: install
	@$(RUN)/gpuctl lab stop
