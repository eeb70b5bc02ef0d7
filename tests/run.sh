#!/usr/bin/env bash
# Sets up and runs the tests: rules of the project, unit tests, real processes and sockets, then the lab.
#   tests/run.sh                 15 minutes or less on 2 cores
#   tests/run.sh --all           and what takes longer, 60 minutes or less
#   tests/run.sh [pytest words]  only those, for example: tests/run.sh tests/unit -k chain
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in -h | --help) sed -n '2,5p' tests/run.sh; exit ;; esac
if [ "${1:-}" = --all ]; then deploy/setup.sh --all; else deploy/setup.sh --tests; fi
export PATH="$PWD/.venv/bin:$PATH:/usr/sbin:/sbin"

case "${1:-}" in
  '') long='not long' ;;
  --all) long='long or not long' ;;
  *) exec pytest "$@" ;;
esac

# More at once than there are cores: most of the time is waiting, for processes, sockets and, in the lab, for its clock.
# A file stays in one process, so what its tests share is made once; what takes long comes early.
by_file=(--dist loadfile --no-loadscope-reorder --durations=5)
pytest -m "not lab and ($long)" -n 4 "${by_file[@]}"
pytest -m "lab and ($long)" -n 3 "${by_file[@]}"
