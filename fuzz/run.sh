#!/usr/bin/env bash
# Gives the wire and the policy parser to libFuzzer. Usage: run.sh [RUNS [TARGET...]]
#
# RUNS is the number of inputs for each target, a million by default. It starts from the seeds in
# tests/fixtures/fuzz/ and from what it found before, which is kept in fuzz/corpus/. An input that breaks a
# promise is left in fuzz/artifacts/ and ends the run; it belongs among the seeds when it is mended.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${1:-1000000}
targets=("${@:2}")
if [[ ${#targets[@]} -eq 0 ]]; then targets=(wire policy); fi
tests/need.sh cc:gcc c++:g++
if ! command -v cargo-fuzz >/dev/null; then
    echo "installing cargo-fuzz (a minute, once)" >&2
    cargo install --locked --quiet cargo-fuzz
fi
# Instrumenting is not yet stable; the compiler that is there does it when told so.
export RUSTC_BOOTSTRAP=1
for target in "${targets[@]}"; do
    mkdir -p "fuzz/corpus/$target"
    # Without a sanitizer: there is no unsafe code to find faults in, and it would be several times as slow.
    cargo fuzz run --sanitizer none "$target" "fuzz/corpus/$target" "tests/fixtures/fuzz/$target" -- \
        -runs="$runs" -max_len=4096 -timeout=10 -rss_limit_mb=1024 -print_final_stats=1
done
