#!/usr/bin/env bash
# Pins every dependency with its hash, for Python 3.11 and later. Run after a change of pyproject.toml.
# --no-emit-index-url and --no-emit-find-links keep the names of package registries out of the tree.
set -euo pipefail
cd "$(dirname "$0")/../.."
lock() { # output, extras...
  local out=$1; shift
  .venv/bin/uv pip compile pyproject.toml deploy/requirements/build.in --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command deploy/requirements/lock.sh \
    "$@" --output-file "deploy/requirements/$out"
}
lock agent.txt
lock collector.txt --extra collector
lock dev.txt --extra dev
lock full.txt --all-extras # with the report extra
