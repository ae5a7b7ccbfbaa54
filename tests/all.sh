#!/usr/bin/env bash
# The tests, in parts. Usage: all.sh PART...
#
#   pure     tier 1: everything that needs no kernel of its own; any user, any machine
#   kernel   tier 2: this machine's cgroups, whatever their hierarchy; needs root
#   core     tier 3: one Debian 13 in QEMU, and the scenarios marked `core`; needs root
#   lint     rustfmt, clippy, documentation, dependencies, shell scripts
#   package  the Debian package and the RPM, built with the profile `dev`, what lintian says, and the same bytes twice
#   rest     tier 3: the scenarios that `core` leaves, on Debian 12 and 13, and the harness itself; needs root
#   once     tier 3: the scenarios that `core` leaves, each on one release; needs root
#   newest   tier 3: a few scenarios on the newest kernels and systemd of Debian; needs root
#   vm       tier 3: `core` and `rest` in the same guests, and `newest`
#
# `make test` is pure, kernel and core; `make test-all` is everything.
#
# A part that passes prints a line or two; one that fails prints its output. What cannot run here is skipped, says
# why, and counts as skipped. Under CI (`CI` set and not empty) a skip that a package could have prevented is a
# failure. The last line is `N passed, N failed, N skipped` over everything.
set -euo pipefail
cd "$(dirname "$0")/.."

# Where cargo puts the programs that it installs.
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

# The module of the integration tests that holds tier 2.
tier2=kernel
if [[ -n ${CI:-} ]]; then export TENANTD_REQUIRE_KERNEL=1; fi

passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

ok() { echo "ok   $1"; }
fail() {
    echo "FAIL $1"
    failed=$((failed + 1))
}
skip() {
    echo "skip $1"
    skipped=$((skipped + 1))
}
# lacks PART REASON: something is missing that a package would bring.
lacks() {
    if [[ -n ${CI:-} ]]; then fail "$1: $2"; else skip "$1: $2"; fi
}
# check PART COMMAND...: one test that is a command, silent while it goes well.
check() {
    local part=$1 since=$SECONDS
    shift
    if "$@" >"$log" 2>&1 </dev/null; then
        passed=$((passed + 1))
        ok "$part ($((SECONDS - since)) s)"
    else
        tail -n 60 "$log"
        fail "$part: $*"
    fi
}
# need PART PROGRAM:PACKAGE...: false, and said why, when the programs are not to be had.
need() {
    local part=$1 why
    shift
    if ! why=$(tests/need.sh "$@" 2>&1); then
        lacks "$part" "$(tail -n 1 <<<"$why")"
        return 1
    fi
}

# cargo_tool NAME: a program of crates.io is there, or is installed now. What is only for a test need not be
# fast: it is compiled without optimising, in a fifth of the time.
cargo_tool() {
    if command -v "$1" >/dev/null; then return; fi
    echo "installing $1 (a minute or two, once)"
    if ! cargo install --locked --quiet --debug "$1" >"$log" 2>&1 </dev/null; then
        tail -n 5 "$log"
        lacks "$1" "please install: $1 (cargo install --locked $1)"
        return 1
    fi
}

lint() {
    for component in rustfmt clippy; do
        if ! cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 &&
            ! rustup component add "$component" >"$log" 2>&1; then
            lacks lint "please install: $component (rustup component add $component)"
            return
        fi
    done
    check rustfmt cargo fmt --check
    check clippy cargo clippy --locked --quiet --all-targets -- -D warnings
    check rustdoc env RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" \
        cargo doc --locked --quiet --no-deps --document-private-items
    if need shellcheck shellcheck:shellcheck; then
        check shellcheck shellcheck .ci/run packaging/build.sh packaging/same_twice.sh packaging/htcondor/*.sh packaging/slurm/*.sh packaging/login/*.sh fuzz/run.sh tests/*.sh tests/vm/*.sh
    fi
    cargo_tool cargo-deny || return 0
    check "cargo-deny bans licenses sources" cargo deny --locked check bans licenses sources
    # The list of advisories is a download of its own; without it there is nothing to check against.
    if cargo deny --locked check advisories >"$log" 2>&1 </dev/null; then
        passed=$((passed + 1))
        ok "cargo-deny advisories"
    elif grep -q 'failed to fetch advisory database' "$log"; then
        skip "cargo-deny advisories: the advisory database cannot be fetched from here"
    else
        tail -n 60 "$log"
        fail "cargo-deny advisories"
    fi
}

# suite PART COMMAND...: runs cargo's tests and adds up what they report. A test that finds out while it runs that
# it cannot judge anything here prints `skipped NAME: REASON`, and libtest `ok`: it counts as skipped.
suite() {
    local part=$1 since=$SECONDS status=0 good bad ignored unable
    shift
    "$@" >"$log" 2>&1 </dev/null || status=$?
    bad=$(tally failed)
    ignored=$(tally ignored)
    unable=$(skips | cut -f1 | sort -u | wc -l)
    good=$(($(tally passed) - unable))
    passed=$((passed + good))
    skipped=$((skipped + ignored + unable))
    skips | cut -f2 | sort | uniq -c | sed -E "s/^ *([0-9]+) (.*)/skip $part: \2 (\1)/"
    if [[ $status -eq 0 && $bad -eq 0 ]]; then
        ok "$part: $good passed, $((ignored + unable)) skipped ($((SECONDS - since)) s)"
    else
        grep -vE '^test .* \.\.\. (ok|ignored)' "$log" | tail -n 200
        failed=$((failed + (bad > 0 ? bad - 1 : 0)))
        fail "$part: $good passed, $bad failed, exit status $status"
    fi
}
# What the tests in the log skipped: name, tab, reason.
skips() { sed -nE 's/^.*skipped ([a-z0-9_]+(::[a-z0-9_]+)+): (.*)$/\1\t\3/p' "$log"; }
# The sum of one figure over all `test result: ok. 3 passed; 0 failed; 1 ignored; …` lines.
tally() {
    awk -v what="$1" '/^test result: / {
        for (i = 2; i <= NF; i++) if ($i ~ "^" what) sum += $(i - 1)
    } END { print sum + 0 }' "$log"
}

# Programs that check what some tests make: a browser the page, Prometheus rules and metrics, shells completions.
# A test without its program is skipped, but not under CI.
judges=(chromium:chromium promtool:prometheus mandoc:mandoc bash:bash zsh:zsh fish:fish shellcheck:shellcheck)

# Under CI no image of a guest is there yet. They are built beside the compiler, and before anything that measures.
images=
start_images() {
    in_guests || return 0
    {
        tests/vm/image.sh trixie core
        tests/vm/image.sh bookworm rest
        tests/vm/image.sh trixie rest
    } >/dev/null 2>&1 </dev/null &
    images=$!
}
# What fails there fails again where the image is wanted, and says why.
await_images() { if [[ -n $images ]]; then wait "$images" || true; fi; }

pure() {
    need pure cc:gcc || return 0
    if [[ -n ${CI:-} ]]; then start_images; fi
    if [[ -n ${CI:-} ]]; then need pure "${judges[@]}" || return 0; fi
    suite pure timeout 3000 cargo test --locked --no-fail-fast --lib --tests -- --skip "$tier2::"
    suite "pure, examples in the documentation" timeout 3000 cargo test --locked --no-fail-fast --doc
}

kernel() {
    need kernel cc:gcc || return 0
    await_images
    if [[ $EUID -ne 0 ]]; then
        skip "kernel: making cgroups needs root"
    elif ! cgroup_can_be_made; then
        skip "kernel: no cgroup can be made under our own"
    else
        # One after the other: each fills the CPUs of this machine, which is what the others measure.
        suite kernel timeout 3000 cargo test --locked --no-fail-fast --test tests -- --test-threads=1 \
            --include-ignored "$tier2::"
        if [[ $(tally passed) -eq 0 ]]; then fail "kernel: no test ran"; fi
    fi
}
# Tries it, in the hierarchy of the CPU controller, under the cgroup that we are in.
cgroup_can_be_made() {
    local mount path probe
    if mount=$(findmnt -n --first-only -t cgroup -O cpu -o TARGET); then
        path=$(awk -F: '$2 ~ /(^|,)cpu(,|$)/ { print $3 }' /proc/self/cgroup)
    else
        mount=$(findmnt -n --first-only -t cgroup2 -o TARGET || true)
        path=$(awk -F: '$1 == 0 { print $3 }' /proc/self/cgroup)
    fi
    probe=$mount$path/tenantd-probe-$$
    [[ -n $mount ]] && mkdir "$probe" 2>/dev/null && rmdir "$probe"
}

# The packages as they would be given away, but for optimising; the guests install and remove them.
package() {
    local package
    need package cc:gcc strip:binutils gzip:gzip lintian:lintian rpm:rpm || return 0
    if cargo_tool cargo-deb && cargo_tool cargo-generate-rpm; then
        check "package, deb, rpm and tar: the same bytes twice" packaging/same_twice.sh --profile dev
        check "package, lintian" lintian --allow-root --no-cfg --fail-on error target/packages/*.deb
        for package in target/packages/*.deb target/packages/*.rpm; do
            if [[ -f $package ]]; then packages+=("--${package##*.}" "$package"); fi
        done
    fi
}
# For the guests: what was just built.
packages=()

# The harness itself does not depend on the code: `make test` leaves it out.
core() {
    in_guests || return 0
    guests "vm, core" tests/vm/run.sh --tier core
}
once() {
    in_guests || return 0
    guests "vm, once" tests/vm/run.sh --tier once "${packages[@]}"
}
rest() {
    with_selftest --tier rest
}
vm() {
    with_selftest --tier all
    newest
}
newest() {
    in_guests || return 0
    guests "vm, newest" tests/vm/run.sh --tier newest
}
with_selftest() {
    in_guests || return 0
    guests "vm selftest" tests/vm/selftest.sh
    guests "vm, ${*: -1}" tests/vm/run.sh "$@" "${packages[@]}"
}
# in_guests: false, and said why, where no guest can run.
in_guests() {
    if [[ $(uname -m) != x86_64 ]]; then
        skip "vm: the guests are x86_64, this machine is $(uname -m)"
        return 1
    fi
    if [[ $EUID -ne 0 ]]; then
        skip "vm: building the guests' images needs root"
        return 1
    fi
    need vm cc:gcc qemu-system-x86_64:qemu-system-x86 mmdebstrap:mmdebstrap mke2fs:e2fsprogs \
        pgrep:procps pip3:python3-pip strip:binutils \
        /usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring
}
# guests PART COMMAND...: runs it with its lines shown as they come, and adds its last line to the sums.
guests() {
    local part=$1 since=$SECONDS status=0
    shift
    "$@" </dev/null 2>&1 | tee "$log" || status=$?
    if [[ $(tail -n 1 "$log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
        skipped=$((skipped + BASH_REMATCH[3]))
        echo "     $part took $((SECONDS - since)) s"
        if [[ $status -ne 0 && ${BASH_REMATCH[2]} -eq 0 ]]; then
            fail "$part: exit status $status"
        fi
    else
        fail "$part: exit status $status, and no closing line"
    fi
}

# A full disk ends builds and logs in the middle, and the messages with them: this line comes before.
needed_gib=8
free_gib=$(df --output=avail -B1G . | tail -n 1 | tr -d ' ')
if [[ $free_gib -lt $needed_gib ]]; then
    echo "this disk has $free_gib GiB free, and the tests need about $needed_gib: free some, or set CARGO_TARGET_DIR to a folder on another disk"
fi

if ! command -v cargo >/dev/null; then
    echo "please install: a Rust toolchain (https://rustup.rs)"
    exit 1
fi
if [[ $# -eq 0 ]]; then
    sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0" >&2
    exit 2
fi
for part in "$@"; do
    case $part in
        pure | kernel | core | lint | package | once | rest | newest | vm) ;;
        *) echo "all.sh: no part is called $part" >&2; exit 2 ;;
    esac
done
for part in "$@"; do
    echo "== $part"
    "$part"
done
echo "all of it took $SECONDS s"
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 ]]
