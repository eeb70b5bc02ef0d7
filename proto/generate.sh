#!/usr/bin/env bash
# Writes the Python code of the contract, and of what the collector sends to others, beside the .proto files, or, with a
# folder, into that folder (the test of freshness compares the two).
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-.}
python=../.venv/bin/python
PATH="$PWD/../.venv/bin:$PATH" "$python" -m grpc_tools.protoc -I . \
  --python_out="$out" --grpc_python_out="$out" --mypy_out="$out" \
  bandwitness/v1/record.proto bandwitness/v1/plan.proto bandwitness/v1/uplink.proto
rm -f "$out"/bandwitness/v1/{record,plan}_pb2_grpc.py
PATH="$PWD/../.venv/bin:$PATH" "$python" -m grpc_tools.protoc -I .. --python_out="${1:-..}" --mypy_out="${1:-..}" \
  collector/export/remote_write/write.proto
