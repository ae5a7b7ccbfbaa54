#!/usr/bin/env bash
# The scenarios marked `newest` on the newest kernels and the newest systemd of Debian: both guests beside each other, because
# none of these scenarios judges shares. The output is that of run.sh, one guest after the other.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/tenantd-newest.XXXXXX")
trap 'rm -rf "$work"' EXIT
suites=(backports forky) pids=()

cd "$here/../.."
cargo build --locked --quiet --bins --test tests </dev/null
for suite in "${suites[@]}"; do
    "$here/run.sh" --tier newest --suite "$suite" >"$work/$suite" 2>&1 </dev/null &
    pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=1; done

passed=0 failed=0 skipped=0
for suite in "${suites[@]}"; do
    head -n -1 "$work/$suite"
    if [[ $(tail -n 1 "$work/$suite") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
        skipped=$((skipped + BASH_REMATCH[3]))
    else
        tail -n 1 "$work/$suite"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"
