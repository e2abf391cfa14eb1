PYTHON ?= python3
PIP_FLAGS ?=
BIN := .venv/bin
QUICK ?=
.PHONY: demo experiments docs test faults kernels huggingface lint types format clean

# The first command: from a clone to pages with tables and pictures. It says how long it takes; Ctrl-C keeps what is done.
demo: .venv
	$(BIN)/seqmodels compare $(QUICK)

# Every textbook claim and docs/experiments.md: under an hour on two cores; with QUICK=--quick five minutes, into a temporary folder.
experiments: .venv
	PYTHONPATH=. $(BIN)/python experiments/claims --jobs 2 $(QUICK)

# The documentation into site/, to be read from the folder as from a server: any link that leads nowhere is an error.
docs: .venv
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt --editable ".[docs]"
	PYTHONPATH=. $(BIN)/zensical build --clean --strict
	@echo "Open site/index.html"

test: lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# What takes longer than tests: every promise of docs/reliability.md measured anew, in under half an hour.
faults: .venv
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults --jobs 2 --out docs/reliability.md

# The GPU's kernels, interpreted where there is no GPU.
kernels: .venv
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt "triton"
	$(BIN)/python -m pytest tests/hmm/inference/test_triton_kernels.py

# Conversions against the package that published models come in, which is too large to be installed for every test run.
huggingface: .venv
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt "transformers"
	$(BIN)/python -m pytest tests/neural/huggingface

lint: .venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv
	$(BIN)/mypy

format: .venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The environment: everything pinned, so that what worked here works there.
.venv: pyproject.toml constraints.txt
	@echo "Setting up .venv with torch and the rest: some minutes the first time."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt "torch" "setuptools"
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt --editable ".[test]"
	touch .venv

clean:
	rm -rf .venv results site .pytest_cache .mypy_cache .ruff_cache
