#!/usr/bin/env bash
# Builds the root image of one Debian release, or finds it, and prints the folder that holds it:
# root.img (ext4), vmlinuz and initrd. Usage: image.sh bookworm|trixie|backports|forky core|rest|compare
#   backports  is trixie with the kernel of trixie-backports; forky is Debian testing
#   core     the packages of packages.txt: what `make test` needs
#   rest     those of packages-rest.txt as well, and on Debian 13 of packages-rest-trixie.txt
#   compare  those of packages-compare.txt as well, and none of packages-rest.txt
#
# Images live outside the tree, in ${XDG_CACHE_HOME:-~/.cache}/tenantd-vm/SUITE-KEY, where KEY is a
# hash of everything that goes into one: this script, the package lists, the unit file, the suite.
# They hold no code of ours: that comes on a second disk (boot.sh), so a change of code never
# rebuilds one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
suite=${1:?usage: image.sh SUITE core|rest}
lists=("$here/packages.txt")
case ${2:?usage: image.sh SUITE core|rest|compare} in
    core) ;;
    rest | compare)
        lists+=("$here/packages-$2.txt")
        if [[ -e $here/packages-$2-$suite.txt ]]; then lists+=("$here/packages-$2-$suite.txt"); fi
        ;;
    *) echo "image.sh: no packages are called $2" >&2; exit 2 ;;
esac

inputs=("$here/image.sh" "${lists[@]}" "$here/tenantd-scenarios.service")
key=$({ echo "$suite"; cat "${inputs[@]}"; } | sha256sum | cut -c1-16)
cache=${TENANTD_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tenantd-vm}
image=$cache/$suite-$key

mkdir -p "$cache"
# Two runs that want the same image: the second waits for the first, then finds it made.
exec 9>"$cache/.$suite.lock"
flock 9
if [[ -d $image ]]; then
    touch "$image"
    echo "$image"
    exit
fi
if [[ $EUID -ne 0 ]]; then
    echo "image.sh: building the $suite image needs root" >&2
    exit 1
fi

# The mirror this host itself uses, when it is one of Debian; else mmdebstrap's own choice.
# shellcheck disable=SC2016  # the names are for apt to fill in
mirror=${TENANTD_VM_MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' \
    'Created-By: Packages' | awk '$1 == "Debian" && $2 ~ /\/debian\/?$/ { print $2; exit }')}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
packages=$(sed 's/#.*//' "${lists[@]}" | xargs | tr ' ' ',')
release=$suite sources=(${mirror:+"$mirror"}) options=()
case $suite in
    backports)
        release=trixie
        mirror=${mirror:-http://deb.debian.org/debian}
        sources=("deb $mirror trixie main" "deb $mirror trixie-backports main")
        packages=${packages/linux-image-cloud-amd64/linux-image-cloud-amd64/trixie-backports}
        ;;
    # The index of testing is valid for a week, and a mirror may be older. The signature is checked all the same.
    forky) options=('--aptopt=Acquire::Check-Valid-Until "false"') ;;
esac

work=$(mktemp -d "$cache/.build-$suite.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root

# The first disk's driver and file system are all that the initial root needs: to unpack every module there
# is takes an emulated processor longer than to load the kernel.
# shellcheck disable=SC2016  # $1 is for mmdebstrap to fill in
early='mkdir -p "$1/etc/initramfs-tools/conf.d" && echo MODULES=list >"$1/etc/initramfs-tools/conf.d/guest" &&
    printf "virtio_pci\nvirtio_blk\next4\n" >"$1/etc/initramfs-tools/modules"'
mmdebstrap --quiet --variant=minbase --format=directory --keyring="$keyring" \
    --include="$packages" --aptopt='Acquire::Retries "3"' --essential-hook="$early" "${options[@]}" \
    "$release" "$root" "${sources[@]}" >"$work/log" 2>&1 </dev/null || {
    tail -n 20 "$work/log" >&2
    echo "image.sh: mmdebstrap could not build $suite" >&2
    exit 1
}

echo "tenantd-$suite" >"$root/etc/hostname"
echo "/dev/vda / ext4 defaults 0 0
LABEL=payload /payload ext4 ro 0 0" >"$root/etc/fstab"
# Accounts come from files, but for a scenario that sets something else.
if [[ -e $root/etc/nsswitch.conf ]]; then sed -i 's/ *\bsystemd\b//' "$root/etc/nsswitch.conf"; fi
mkdir "$root/payload"
# A fixed machine id: a machine without one takes its first boot for an installation.
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
cp "$here/tenantd-scenarios.service" "$root/etc/systemd/system/"
# What a scenario needs it starts itself.
for unit in condor.service containerd.service mariadb.service munge.service podman.service podman.socket \
    podman-auto-update.timer podman-clean-transient.service podman-restart.service postgresql.service slurmctld.service \
    slurmd.service slurmdbd.service systemd-oomd.service; do
    if [[ -e $root/usr/lib/systemd/system/$unit ]]; then systemctl --root="$root" --quiet disable "$unit"; fi
done
# Nothing else may use the console or the processors while the scenarios measure.
for unit in getty.target apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
    e2scrub_all.timer e2scrub_reap.service fstrim.timer systemd-tmpfiles-clean.timer; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done

# Systemd asks every generator at each daemon-reload; of these only the one for /etc/fstab has an answer here.
for kind in system user; do
    mkdir -p "$root/etc/systemd/$kind-generators"
    for generator in "$root/usr/lib/systemd/$kind-generators"/*; do
        case $generator in
            *-fstab-generator) ;;
            *) ln -s /dev/null "$root/etc/systemd/$kind-generators/${generator##*/}" ;;
        esac
    done
done
# What is written goes to a throw-away layer: nobody has to wait for a disk.
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/guest"

mkdir "$work/image"
cp "$root"/boot/vmlinuz-* "$work/image/vmlinuz"
cp "$root"/boot/initrd.img-* "$work/image/initrd"
rm -rf "${root:?}"/boot/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/doc/*
mke2fs -q -t ext4 -L root -d "$root" "$work/image/root.img" 3G >/dev/null
mv "$work/image" "$image"
# Images that nobody has asked for in a month.
find "$cache" -maxdepth 1 -type d -name '*-????????????????' -mtime +30 -exec rm -rf {} +
echo "$image"
