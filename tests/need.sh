#!/usr/bin/env bash
# Makes sure that programs are there. Usage: need.sh PROGRAM:DEBIAN-PACKAGE...
#
# As root, what is missing is installed with apt; otherwise one line says what to install, and the
# exit status is 1. A program written as a path is looked for as a file.
set -euo pipefail

present() {
    case $1 in
        /*) [[ -e $1 ]] ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

missing=()
for wanted in "$@"; do
    present "${wanted%%:*}" || missing+=("${wanted#*:}")
done
if [[ ${#missing[@]} -eq 0 ]]; then exit; fi

if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
    echo "please install: ${missing[*]} (on Debian or Ubuntu: sudo apt-get install ${missing[*]})" >&2
    exit 1
fi
echo "installing with apt: ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends)
# The package lists may be missing or old; they are fetched only then.
if ! "${install[@]}" "${missing[@]}" >"$log" 2>&1 </dev/null; then
    apt-get -q update >"$log" 2>&1 </dev/null || true
    if ! "${install[@]}" "${missing[@]}" >"$log" 2>&1 </dev/null; then
        tail -n 5 "$log" >&2
        echo "apt could not install: ${missing[*]}" >&2
        exit 1
    fi
fi
