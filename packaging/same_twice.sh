#!/usr/bin/env bash
# Packs everything twice and fails unless both times have the same bytes. Usage: same_twice.sh [--profile PROFILE]
#
# The second time has another time zone, language and file mode mask, and files with earlier times, for which cargo builds nothing
# again. The programs are built once; `rm -r target/PROFILE` before each call of build.sh compares whole builds.
set -euo pipefail
cd "$(dirname "$0")/.."

packaging/build.sh all "$@" >/dev/null
before=$(cat target/packages/SHA256SUMS)
find systemd policies packaging -type f -exec touch --date=2001-01-01 {} +
(
    umask 077
    export TZ=Asia/Tokyo LC_ALL=C.UTF-8
    packaging/build.sh all "$@" >/dev/null
)
after=$(cat target/packages/SHA256SUMS)
if [[ $before != "$after" ]]; then
    printf 'the packages differ:\n%s\n%s\n' "$before" "$after" >&2
    exit 1
fi
echo "$after"
