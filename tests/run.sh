#!/usr/bin/env bash
# Sets up and runs the tests: checks, unit tests, then end-to-end tests in the lab.
#   tests/run.sh                 15 minutes or less on 2 cores
#   tests/run.sh --all           and what takes longer, 60 minutes or less
#   tests/run.sh [pytest words]  only those, for example: tests/run.sh tests/unit -k chain
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/setup.sh --tests
export PATH="$PWD/.venv/bin:$PATH:/usr/sbin:/sbin"

if [ $# -gt 0 ] && [ "$1" != --all ]; then exec pytest "$@"; fi

selection='not long'
[ "${1:-}" != --all ] || selection=''
ruff check .
ruff format --check .
mypy
lint-imports
pytest -m "${selection:-lab or not lab}" --durations=10
