#!/usr/bin/env bash
# Tier 3 of the tests: the programs on real Debian hosts with systemd and a unified hierarchy.
#
# Usage: run.sh [--tier core|newest|once|rest|all|long|compare] [--only PATTERN] [--suite bookworm|trixie|backports|forky] [--shape flat|numa]
#               [--bin FOLDER] [--tests FILE] [--deb FILE] [--rpm FILE]
#   --tier core   only the scenarios marked `core`, on the newer release; `newest`: those marked so, on the newest kernels and
#                 the newest systemd that Debian has; `rest`: what core leaves; `once`: the same, each on one release; `all` (default)
#                 each scenario on the releases it is marked for (guest/marks.py); `long`: those that measure for minutes;
#                 `compare`: the tables of tests/vm/compare.sh
#   --only PATTERN  only scenarios in whose name this regular expression is found, whatever their marks
#   --suite, --shape   every scenario in this guest, whatever its marks; with --only the newer release, flat
#   --bin FOLDER  the programs in this folder instead of freshly built ones
#   --tests FILE   the compiled tests, for `soak`, which is skipped without them
#   --deb FILE, --rpm FILE   this package instead of one that is built of the `dev` profile; without cargo-deb
#                 or cargo-generate-rpm there is none, and its scenarios are skipped
#
# Prints a line for each scenario (`ok NAME`, `FAIL NAME: why`, `skip NAME: why`; lines with # hold
# figures) and at last `N passed, N failed, N skipped` over all guests. Exit status 0: nothing failed
# in any guest and every guest went through.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."

# Rounds of guests that run beside each other, each with the scenarios of this pace (guest/marks.py).
rounds=("bookworm flat beside,trixie flat beside" "bookworm flat alone" "trixie flat alone" "trixie numa any")
tier=all only='' suite='''' shape='' bin='' tests='' deb='' rpm=''
while [[ $# -gt 0 ]]; do
    case $1 in
        --tier) tier=$2 ;;
        --only) only=$2 ;;
        --suite) suite=$2 ;;
        --shape) shape=$2 ;;
        --bin) bin=$2 ;;
        --tests) tests=$2 ;;
        --deb) deb=$2 ;;
        --rpm) rpm=$2 ;;
        *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift 2
done
packages=rest
case $tier in
    core) rounds=("trixie flat any") packages=core ;;
    newest) rounds=("backports flat any,forky flat any") packages=core ;;
    once) rounds=("bookworm flat beside,trixie flat beside" "trixie flat alone" "trixie numa any") ;;
    rest | all) ;;
    # They have no scenario for the guest of two nodes.
    long) rounds=("bookworm flat any" "trixie flat any") ;;
    compare) rounds=("bookworm flat any" "trixie flat any") packages=compare ;;
    *) echo "run.sh: unknown tier $tier" >&2; exit 2 ;;
esac
if [[ -n $only || -n $suite || -n $shape ]]; then
    rounds=("${suite:-trixie} ${shape:-flat} any")
    if [[ $tier != newest ]]; then tier=any; fi
    if [[ $only == *compare* ]]; then packages=compare; fi
fi
# Some figures need a guest without noise.
if [[ ${TENANTD_VM_ACCEL:-} == exact ]]; then export SCENARIO_EXACT=1; fi
# A scenario that compares runs its load several times.
if [[ $packages == compare ]]; then export SCENARIO_LIMIT=${SCENARIO_LIMIT:-1500}; fi

# Builds the programs so that they start in every guest, and sets `bin` to where they are. The oldest
# guest has glibc 2.36; on a newer host they are linked statically. (--target keeps the flag away
# from build scripts and macros.) They are those that the tests have built: without the tests' dependencies
# other features are chosen, and everything is built once more.
build() {
    local command=(cargo build --locked --quiet --bins --test tests) libc triple
    bin=${CARGO_TARGET_DIR:-target}/debug
    libc=$(getconf GNU_LIBC_VERSION)
    if ! printf '%s\n2.36\n' "${libc#* }" | sort -V -C; then
        triple=$(rustc -vV | sed -n 's/^host: //p')
        command+=(--target "$triple")
        bin=${CARGO_TARGET_DIR:-target}/$triple/debug
        export RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static"
    fi
    "${command[@]}" </dev/null
}
if [[ -z $bin ]]; then build; fi
# Only where a scenario of the packages may run; they want libraries no newer than the oldest guest's.
if [[ $tier != core && $tier != newest && $tier != compare && -z ${RUSTFLAGS:-} && (-z $only || $only =~ package|documents) ]]; then
    if [[ -z $deb ]] && command -v cargo-deb >/dev/null; then
        deb=$(packaging/build.sh deb --profile dev)
    fi
    if [[ -z $rpm ]] && command -v cargo-generate-rpm >/dev/null; then
        rpm=$(packaging/build.sh rpm --profile dev)
    fi
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/tenantd-scenarios.XXXXXX")
declare -A booted
clean_up() {
    local pid
    for pid in "${booted[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
    for pid in "${booted[@]}"; do wait "$pid" || true; done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$work/payload/bin"
# Four fifths of them are for a debugger, and an emulated guest copies them where a package would.
for program in tenantd tenantctl tenantd-nri; do strip -o "$work/payload/bin/$program" "$bin/$program"; done
if [[ -n $tests ]]; then strip -o "$work/payload/bin/tests" "$tests"; fi
# Programs that need nothing else, linked statically as above.
for load in one_per_cpu load; do
    rustc --edition 2024 -O -C target-feature=+crt-static -o "$work/payload/bin/$load" "examples/$load.rs"
done
cp -r "$here/guest" "$work/payload/guest"
cp -r systemd "$work/payload/systemd"
cp packaging/policy.yaml "$work/payload/"
# The documents that scenarios follow, and the files that these name.
mkdir -p "$work/payload/documents/docs"
cp README.md "$work/payload/documents/"
cp docs/*.md "$work/payload/documents/docs/"
cp -r packaging scenarios "$work/payload/documents/"
cp examples/resize.py "$work/payload/guest/"
cp -r packaging/htcondor packaging/slurm "$work/payload/"
# A client of the socket that others wrote; the scenarios that want it are skipped where it cannot be had.
mkdir "$work/payload/python"
wheels=${TENANTD_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tenantd-vm}/python
if ! pip3 download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$wheels" \
    --requirement "$here/requirements.txt" </dev/null; then
    echo "# the Python package varlink cannot be had" >&2
fi
find "$wheels" -name '*.whl' -exec cp -t "$work/payload/python" {} + 2>/dev/null || true
mkdir "$work/payload/package"
for package in "$deb" "$rpm"; do
    if [[ -n $package ]]; then cp "$package" "$work/payload/package/"; fi
done

limit=3000
if [[ $packages == compare ]]; then limit=7200; fi
# One scenario that may take longer takes the guest with it.
if [[ ${SCENARIO_LIMIT:-0} -gt $limit ]]; then limit=$((SCENARIO_LIMIT + 600)); fi
passed=0 failed=0 skipped=0
# start SUITE SHAPE PACE: boots this guest in the background.
start() {
    local image payload=$work/$1-$2
    image=$("$here/image.sh" "$1" "$packages") || return 1
    TENANTD_VM_ACCEL=${TENANTD_VM_ACCEL:-$("$here/accel.sh" "$image")}
    export TENANTD_VM_ACCEL
    # The same files, with a start of its own.
    rm -rf "$payload"
    cp -rl "$work/payload" "$payload"
    {
        echo '#!/bin/bash'
        # What scenarios are told (tests/vm/README.md), where it was set.
        for name in "${!SCENARIO_@}"; do printf 'export %s=%q\n' "$name" "${!name}"; done
        printf 'exec python3 -B /payload/guest/run.py %s %s %s %q\n' "$2" "$tier" "$3" "$only"
    } >"$payload/start"
    chmod +x "$payload/start"
    "$here/boot.sh" --shape "$2" --limit "$limit" "$image" "$payload" >"$payload.out" 2>&1 &
    booted[$1-$2]=$!
}
# finish SUITE SHAPE: shows what this guest says until it has ended, and adds up its verdicts.
finish() {
    local out=$work/$1-$2.out pid=${booted[$1-$2]:-} tail status=0 word rest
    echo "== $1, $2"
    if [[ -z $pid ]]; then
        echo "FAIL $1 $2: no image"
        failed=$((failed + 1))
        return
    fi
    # A signal interrupts `wait`, and no program in the foreground.
    tail -n +1 -f -s 0.2 --pid="$pid" "$out" &
    tail=$!
    wait "$pid" || status=$?
    unset "booted[$1-$2]"
    wait "$tail"
    while read -r word rest; do
        case $word in
            ok) passed=$((passed + 1)) ;;
            FAIL) failed=$((failed + 1)) ;;
            skip) skipped=$((skipped + 1)) ;;
        esac
    done <"$out"
    # boot.sh names what went wrong with a guest; should it ever not, this still counts.
    if [[ $status -ne 0 ]] && ! grep -q '^FAIL ' "$out"; then
        echo "FAIL $1 $2: boot.sh ended with status $status"
        failed=$((failed + 1))
    fi
}
for round in "${rounds[@]}"; do
    IFS=, read -ra guests <<<"$round"
    for guest in "${guests[@]}"; do
        read -r suite shape pace <<<"$guest"
        start "$suite" "$shape" "$pace" || true
    done
    for guest in "${guests[@]}"; do
        read -r suite shape pace <<<"$guest"
        finish "$suite" "$shape"
    done
done
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 && $passed -gt 0 ]]
