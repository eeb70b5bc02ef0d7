#!/usr/bin/env bash
# The demo: two racks of network namespaces, an oversold uplink, a virtual night and evening, and the verdict.
#   deploy/demo.sh                keeps the collector serving on 127.0.0.1:7480 until Ctrl-C
#   deploy/demo.sh --once         ends after the verdict
#   deploy/demo.sh --help         all options
# Runs as root, or as an ordinary user where the kernel allows user namespaces.
set -euo pipefail
began=$EPOCHSECONDS
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/deploy/setup.sh"
export PATH="$PATH:/usr/sbin:/sbin" PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$root/.venv/bin/python" -m tests.lab.demo --began "$began" "$@"
