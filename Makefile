# Every command of this project; `make` alone lists them.

PYTHON ?= python3
VENV := .artifacts/venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := python_backends client perf build tests model_repository

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test check format render lock bench bench-peers bench-batching perf-analyzer clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP) ## install everything: Python packages, tritonserver, the default model
	@$(BIN)/naiad setup

demo: $(STAMP) ## set up, start Triton, ask a real question, stream the answer, stop
	@$(BIN)/naiad demo

serve: setup ## serve until Ctrl-C (HTTP 8000, gRPC 8001, metrics 8002); ARGS="--http-port 9000 ..."
	@$(BIN)/naiad serve $(ARGS)

test: setup ## the whole suite, on a real tritonserver; ARGS="-k name" chooses
	@$(BIN)/python -m pytest $(ARGS)

check: $(STAMP) ## lint, format, types, import rules, rendered files
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy $(SOURCES:model_repository=)
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/naiad build render --check

format: $(STAMP) ## put the code into its standard form
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

render: $(STAMP) ## render configurations and reference pages from the contract and the profiles
	@$(BIN)/naiad build render

lock: ## pin the dependencies anew (needs uv)
	uv pip compile --universal --python-version 3.10 --generate-hashes --no-emit-index-url --no-header \
	  --extra dev --extra bench pyproject.toml -o requirements.lock
	echo aiperf==0.13.0 | uv pip compile --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header - -o perf/naiad_perf/drivers/aiperf.lock
	cd build/naiad_build/quantize/environments && uv pip compile --universal --python-version 3.10 \
	  --generate-hashes --no-emit-index-url --no-header nncf.in -o nncf.lock

bench: setup ## measure a scenario and write a report; ARGS="cpu_rate --repeats 5", by default quick
	@$(BIN)/naiad bench sweep $(or $(ARGS),quick)

bench-peers: setup ## against llama.cpp's server, transformers and the bare engine; ARGS="--rounds 5"
	@$(BIN)/naiad bench peers $(ARGS)

perf-analyzer: $(STAMP) ## run NVIDIA's perf_analyzer; ARGS="-m tensorrt_llm_bls -i grpc ..."
	@$(BIN)/naiad bench perf-analyzer -- $(ARGS)

bench-batching: setup ## in-flight batching against one stream and the bare engine; ARGS="--rounds 9"
	@$(BIN)/naiad bench overhead --streams 1,32 --tokens 128 $(ARGS)

clean: ## remove everything that was set up
	rm -rf .artifacts

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) build/check_python.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Python packages into $(VENV)"
	@$(BIN)/python -m pip install --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
