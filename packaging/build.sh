#!/usr/bin/env bash
# A package of what is checked out. Usage: build.sh deb|rpm [--profile PROFILE]
#
# PROFILE is a build profile of cargo, `dist` by default; `dev` is for tests that must not wait for an
# optimised build. Prints the path of the package as its last line.
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:-} profile=dist
if [[ ${2:-} == --profile ]]; then profile=${3:?}; fi
case $kind in
    deb) tool=cargo-deb ;;
    rpm) tool=cargo-generate-rpm ;;
    *) echo "usage: build.sh deb|rpm [--profile PROFILE]" >&2; exit 2 ;;
esac
tests/need.sh cc:gcc strip:binutils gzip:gzip
if ! command -v "$tool" >/dev/null; then
    echo "installing $tool (some minutes, once)" >&2
    cargo install --locked --quiet "$tool"
fi

target=${CARGO_TARGET_DIR:-target}
folder=$profile
if [[ $profile == dev ]]; then folder=debug; fi
targets=(--bins)
# Of what the tests have built: with their dependencies go features that would make everything build once more.
if [[ $profile == dev ]]; then targets+=(--test tests); fi
cargo build --locked --quiet "${targets[@]}" --profile "$profile"

# The packages take what they hold from here. No times and no names in compressed files, so that the same
# sources make the same package.
made=target/package
rm -rf "$made"
mkdir -p "$made/bin" "$made/completions"
for program in tenantd tenantctl; do
    strip -o "$made/bin/$program" "$target/$folder/$program"
done
"$made/bin/tenantctl" generate man "$made/man"
gzip -9n "$made"/man/*
"$made/bin/tenantctl" generate completions bash >"$made/completions/tenantctl"
"$made/bin/tenantctl" generate completions zsh >"$made/completions/_tenantctl"
"$made/bin/tenantctl" generate completions fish >"$made/completions/tenantctl.fish"

case $kind in
    deb)
        options=()
        # What is only for a test is unpacked by emulated processors.
        if [[ $profile == dev ]]; then options=(-Z gz --compress-system); fi
        cargo deb -p tenantd --quiet --locked --no-build --no-strip "${options[@]}" --output target/debian/ | tail -n 1
        ;;
    rpm)
        options=()
        if [[ $profile == dev ]]; then options=(--payload-compress none); fi
        cargo generate-rpm -p src/agent "${options[@]}"
        find target/generate-rpm -name 'tenantd-*.rpm' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2
        ;;
esac
