#!/usr/bin/env bash
# Makes .venv with every pinned dependency, and installs the system packages that are missing when it may
# (root, or sudo without a password). Safe to run again: does nothing that is already done.
#   deploy/setup.sh            what the demo and an operator need
#   deploy/setup.sh --tests    and what the tests need
set -euo pipefail
cd "$(dirname "$0")/.."

lock=deploy/requirements/collector.txt
packages=(iperf3 iproute2 python3-venv)
programs=(iperf3 ip tc)
if [ "${1:-}" = --tests ]; then
  lock=deploy/requirements/dev.txt
  packages+=(fping tcpdump nftables openssl protobuf-compiler prometheus)
  programs+=(fping tcpdump nft openssl protoc promtool)
fi

say() { printf '%s\n' "$*" >&2; }

missing=()
for program in "${programs[@]}"; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing+=("$program")
done

python=
for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
  if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    python=$candidate; break
  fi
done
[ -n "$python" ] || { say "Python 3.11 or newer is needed; set PYTHON to one."; exit 1; }
[ -x .venv/bin/python ] || "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)

if [ ${#missing[@]} -gt 0 ]; then
  sudo=
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || { say "Missing: ${missing[*]}. As root: apt-get install ${packages[*]}"; exit 1; }
    sudo=sudo
  fi
  say "Installing system packages: ${packages[*]}"
  # Servers that come with these packages are for tests to start, not for this machine to run.
  $sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq update >&2
  $sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq install -y --no-install-recommends "${packages[@]}" >&2
fi

stamp=$(sha256sum "$lock" pyproject.toml | sha256sum | cut -d' ' -f1)
if [ "$(cat .venv/.bandwitness-stamp 2>/dev/null)" != "$stamp" ]; then
  [ -x .venv/bin/python ] || { say "Making .venv with $("$python" --version)"; "$python" -m venv .venv; }
  say "Installing pinned Python packages ($lock)"
  .venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"
  .venv/bin/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
  printf '%s' "$stamp" > .venv/.bandwitness-stamp
fi
