#!/usr/bin/env bash
# Makes .venv with every pinned dependency, and installs the system packages that are missing when it may
# (root, or sudo without a password). Safe to run again: does nothing that is already done.
#   deploy/setup.sh            agent and collector, and what the demo needs
#   deploy/setup.sh --agent    the agent alone, for nodes
#   deploy/setup.sh --tests    all of it, and what the tests need
#   deploy/setup.sh --all      and what tests/run.sh --all needs
set -euo pipefail
cd "$(dirname "$0")/.."

set=collector
packages=(iperf3 iproute2 python3 python3-venv)
programs=(iperf3 ip tc)
case "${1:-}" in
  '') ;;
  --agent) set=agent ;;
  --tests | --all)
    set=dev
    packages+=(fping iputils-ping prometheus-smokeping-prober tcpdump nftables openssl protobuf-compiler prometheus prometheus-alertmanager victoria-metrics procps util-linux)
    programs+=(fping ping prometheus-smokeping-prober tcpdump nft openssl protoc prometheus promtool prometheus-alertmanager amtool victoria-metrics sysctl setpriv)
    [ "$1" = --tests ] || { packages+=(npm); programs+=(npm); } ;; # the schema of dashboards
  *) sed -n '2,7p' "$0" >&2; exit 2 ;;
esac

say() { printf '%s\n' "$*" >&2; }

missing=()
for program in "${programs[@]}"; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing+=("$program")
done

# The system's own comes first: every user of this machine can run it.
find_python() {
  local candidate
  for candidate in "${PYTHON:-/usr/bin/python3}" python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s' "$candidate"; return
    fi
  done
  return 1
}
python=$(find_python) || missing+=(python3)
[ -x .venv/bin/python ] || "${python:-false}" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)

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

python=${python:-$(find_python)} || { say "Python 3.11 or newer is needed; set PYTHON to one."; exit 1; }

# A stamp for each lock file says what .venv holds; the larger sets contain the smaller ones.
stamp_of() { sha256sum "deploy/requirements/$1.txt" pyproject.toml | sha256sum | cut -d' ' -f1; }
stamps=.venv/.bandwitness
if [ "$(cat "$stamps/$set" 2>/dev/null)" != "$(stamp_of "$set")" ]; then
  [ -x .venv/bin/python ] || { say "Making .venv with $("$python" --version)"; "$python" -m venv .venv; }
  say "Installing pinned Python packages (deploy/requirements/$set.txt)"
  .venv/bin/pip install --quiet --quiet --disable-pip-version-check --require-hashes -r "deploy/requirements/$set.txt"
  .venv/bin/pip install --quiet --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
  mkdir -p "$stamps"
  for smaller in agent collector dev; do
    stamp_of "$smaller" > "$stamps/$smaller"
    [ "$smaller" != "$set" ] || break
  done
fi
say "Everything is in place."
