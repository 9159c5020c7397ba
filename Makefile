# Every target works as the first command in a fresh clone: it makes .venv and installs everything there.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help setup demo test lint kernels lab bench lock clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

setup: $(READY)  ## make .venv and install everything, with uv when it can be had, pip otherwise

demo: $(READY)  ## run the demonstration and write demo/index.html
	$(BIN)/vpc demo

test: $(READY)  ## check style and types, then run all tests and notebooks
	@$(MAKE) --no-print-directory -j2 lint kernels
	$(BIN)/python -m pytest

lint: $(READY)  ## check style and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

kernels: $(READY)
	$(BIN)/python tests/vpc/compiled.py

lab: $(READY)  ## open the notebooks in JupyterLab
	$(BIN)/vpc lab

bench: $(READY)  ## measure the speed
	$(BIN)/vpc bench body
	$(BIN)/vpc bench worm
	$(BIN)/vpc bench smc
	$(BIN)/vpc bench impute

lock: $(READY)  ## bring requirements.lock up to date with pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra notebooks --extra cluster --extra data --extra dev --group oracles --universal \
		--python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --upgrade --quiet -o requirements.lock

clean:  ## remove .venv and everything made
	rm -rf .venv demo artefacts build *.egg-info

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv --clear .venv
	@if $(BIN)/python -m pip install --quiet --disable-pip-version-check uv; then \
		install="$(BIN)/uv pip install --compile-bytecode --python $(BIN)/python"; \
	else \
		echo "uv cannot be had; pip takes a few minutes"; \
		install="$(BIN)/python -m pip install --disable-pip-version-check"; \
	fi; \
	$$install --quiet --no-deps --require-hashes -r requirements.lock && $$install --quiet --no-deps -e .
	@touch $@
