#!/usr/bin/env bash
# A package of what is checked out. Usage: build.sh deb|rpm|tar|all [--profile PROFILE]
#
# PROFILE is a build profile of cargo, `dist` by default; `dev` is for tests that must not wait for an
# optimised build. Prints the path of the package as its last line. `all` makes every kind from one build, with checksums,
# in target/packages.
#
# The same sources make the same packages: times in them are those of the last commit (or SOURCE_DATE_EPOCH), and
# folders of the builder are not in them.
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:-} profile=dist
if [[ ${2:-} == --profile ]]; then profile=${3:?}; fi
case $kind in
    deb) tools=(cargo-deb) ;;
    rpm) tools=(cargo-generate-rpm) ;;
    tar) tools=() ;;
    all) tools=(cargo-deb cargo-generate-rpm) ;;
    *) echo "usage: build.sh deb|rpm|tar|all [--profile PROFILE]" >&2; exit 2 ;;
esac
tests/need.sh cc:gcc strip:binutils gzip:gzip tar:tar
for tool in "${tools[@]}"; do
    if ! command -v "$tool" >/dev/null; then
        echo "installing $tool (some minutes, once)" >&2
        cargo install --locked --quiet "$tool"
    fi
done
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH
if [[ $profile == dist ]]; then
    export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=tenantd --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
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
for program in tenantd tenantctl tenantd-nri; do
    strip -o "$made/bin/$program" "$target/$folder/$program"
done
"$made/bin/tenantctl" generate man "$made/man"
gzip -9n "$made"/man/*
"$made/bin/tenantctl" generate completions bash >"$made/completions/tenantctl"
"$made/bin/tenantctl" generate completions zsh >"$made/completions/_tenantctl"
"$made/bin/tenantctl" generate completions fish >"$made/completions/tenantctl.fish"

version=$(cargo pkgid -p tenantd | sed 's/.*[#@]//')

make_deb() {
    local options=()
    # What is only for a test is unpacked by emulated processors.
    if [[ $profile == dev ]]; then options=(-Z gz --compress-system); fi
    cargo deb -p tenantd --quiet --locked --no-build --no-strip "${options[@]}" --output target/debian/ | tail -n 1
}

make_rpm() {
    local options=()
    # The tool lowers times after the date to the date; earlier ones it packs as they are.
    find "$made" systemd policies packaging LICENSE-* -type f ! -newermt "@$SOURCE_DATE_EPOCH" \
        -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
    if [[ $profile == dev ]]; then options=(--payload-compress none); fi
    cargo generate-rpm -p src/agent --source-date "$SOURCE_DATE_EPOCH" "${options[@]}"
    find target/generate-rpm -name 'tenantd-*.rpm' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2
}

# What "By hand" of README.md installs, with the programs. They need the C library of the system, which knows its accounts.
make_tar() {
    local name
    name=tenantd-$version-$(uname -m)-linux
    local folder=$made/$name
    mkdir -p "$folder" target/tar
    cp -r "$made/bin" "$made/man" "$made/completions" systemd policies packaging README.md CHANGELOG.md LICENSE-* "$folder"
    tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode='u+rw,go=rX' \
        --directory "$made" "$name" | gzip -9n >"target/tar/$name.tar.gz"
    rm -r "$folder"
    echo "target/tar/$name.tar.gz"
}

case $kind in
    all)
        rm -rf target/packages
        mkdir -p target/packages
        for one in deb rpm tar; do
            cp "$("make_$one")" target/packages/
        done
        (cd target/packages && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
        echo target/packages
        ;;
    *) "make_$kind" ;;
esac
