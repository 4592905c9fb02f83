#!/usr/bin/env bash
# Makes a Debian 12 machine able to build, test and run rueda. Repeating it is cheap: what is done is skipped, and a
# machine that has everything needs no network.
#   tools/setup.sh apt    the Debian packages that a build needs (enough for `make wheel`)
#   tools/setup.sh demo   those, then .venv with torch, rueda and the rueda command
#   tools/setup.sh        all Debian packages, then .venv with everything that `make test` needs and the horovod alias;
#                         then kustomize and a newer Python, unpacked in ~/.cache/rueda
#   tools/setup.sh bench  the same, and the libraries that `make bench` compares with
#   tools/setup.sh wheels the same, and what runs programs of other architectures
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '[setup] %s\n' "$*" >&2; }

missing() {  # the packages of the given section that dpkg does not know as installed
  local package
  for package in $1; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || printf '%s ' "$package"
  done
}

packages_of() {  # a section of the list; the first one has no name
  awk -v wanted="$1" '/^#/ { next } /^\[/ { section = $0; next } section == wanted' tools/apt-packages.txt
}

wanted=${1:-all}
required=$(packages_of '')
optional=
case "$wanted" in
  apt | demo) ;;
  all | bench | wheels)
    required+=" $(packages_of '[test]')"
    optional="$(packages_of '[optional]') $(packages_of "[$wanted]")"
    ;;
  *) say "there is no set-up '$wanted'; see the head of tools/setup.sh"; exit 2 ;;
esac

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

can_be_root() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 install -y \
    --no-install-recommends "$@" </dev/null >&2
}

setup_apt() {
  local need_required need_optional policy=/usr/sbin/policy-rc.d package
  need_required=$(missing "$required")
  need_optional=$(missing "$optional")
  # An optional package that could not be had is not asked for again until the list changes.
  local given_up=build/.setup-optional-given-up list kept=
  list=$(sha256sum <tools/apt-packages.txt)
  if [ -f "$given_up" ] && [ "$(head -n 1 "$given_up")" = "$list" ]; then
    for package in $need_optional; do
      grep -qxF "$package" "$given_up" || kept+="$package "
    done
    need_optional=$kept
  else
    rm -f "$given_up"
  fi
  [ -n "$need_required$need_optional" ] || return 0
  if ! command -v apt-get >/dev/null || ! can_be_root; then
    [ -n "$need_required" ] || return 0
    say "missing: $need_required- install them as root (apt-get install), then repeat."
    return 1
  fi
  # The packages must not start daemons (sshd, slurmd, munged) on this machine.
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  say "apt: $need_required$need_optional"
  as_root apt-get -qq -o Acquire::Retries=3 update </dev/null >&2 || say "apt-get update failed; going on with the lists at hand"
  if [ -n "$need_required" ]; then
    # shellcheck disable=SC2086
    apt_install $need_required || { say "could not install: $need_required- is there a network?"; return 1; }
  fi
  mkdir -p build
  for package in $need_optional; do
    apt_install "$package" || {
      say "$package could not be installed; what needs it will be skipped"
      [ -f "$given_up" ] || printf '%s\n' "$list" >"$given_up"
      printf '%s\n' "$package" >>"$given_up"
    }
  done
}

setup_apt
if [ "$wanted" = apt ]; then exit 0; fi

python=${PYTHON:-python3}
command -v "$python" >/dev/null || { say "no $python; set PYTHON to a Python 3.10 or newer"; exit 1; }
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then  # also one that was interrupted
  say "creating .venv with $("$python" --version)"
  "$python" -m venv .venv
fi
if [ "$wanted" = demo ]; then
  .venv/bin/python tools/setup_venv.py demo
  exit 0
fi
.venv/bin/python tools/setup_venv.py
.venv/bin/python tools/setup_mpi.py
.venv/bin/python tools/setup_extras.py
