#!/usr/bin/env bash
# Installs what packages.txt names and this machine lacks. Without root it only says what is missing: the tests that
# need it then say why they could not run. With CI set, an incomplete machine is a failure.
set -euo pipefail

list="$(dirname "$0")/../packages.txt"

missing_packages() {
  local name
  sed -e 's/#.*//' "$list" | tr -s '[:space:]' '\n' | while read -r name; do
    [ -z "$name" ] && continue
    dpkg-query --show --showformat='${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || echo "$name"
  done
}

go_on_without() {
  echo "test packages: $1" >&2
  if [ -n "${CI:-}" ]; then
    echo "test packages: CI is set, so this is a failure" >&2
    exit 1
  fi
  echo "test packages: going on; the tests that need them will say why they could not run" >&2
  exit 0
}

command -v dpkg-query >/dev/null || go_on_without "not a Debian machine; install the equivalents of $list by hand"
mapfile -t missing < <(missing_packages)
[ "${#missing[@]}" -eq 0 ] && exit 0
install=(apt-get install --yes --no-install-recommends "${missing[@]}")
[ "$(id -u)" -eq 0 ] || go_on_without "missing, and only root can install them: sudo ${install[*]}"

export DEBIAN_FRONTEND=noninteractive
export NEEDRESTART_SUSPEND=1
export RUNLEVEL=1 # the tests start private services; the packages' own must not start beside them
lock_patience=(-o DPkg::Lock::Timeout=300)
apt-get "${lock_patience[@]}" --quiet --quiet update
"${install[@]:0:1}" "${lock_patience[@]}" --quiet --quiet "${install[@]:1}"
