#!/usr/bin/env bash
# Prints how the guests of this machine run: `kvm` where it boots their kernel, else `tcg` (emulation).
# Usage: accel.sh IMAGE
#
# That /dev/kvm can be opened says little: below some hypervisors it is there and a guest hangs. So the kernel of
# IMAGE is booted, with two CPUs, as far as its first program, which is missing on purpose: it panics, and QEMU ends.
# That takes KVM about two seconds; what takes longer than ten, or says something else, is emulated. The answer is
# kept until this machine boots again. TENANTD_VM_ACCEL=kvm|tcg decides without asking.
set -euo pipefail
image=${1:?usage: accel.sh IMAGE}

if [[ ! -r /dev/kvm || ! -w /dev/kvm ]]; then
    echo tcg
    exit
fi
cache=${TENANTD_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tenantd-vm}
known=$cache/.accel-$(cat /proc/sys/kernel/random/boot_id)-$(basename "$image")
if [[ ! -s $known ]]; then
    console=$(mktemp)
    trap 'rm -f "$console"' EXIT
    # In the background: nobody waits for a QEMU that does not even take a signal. What bash says of one that
    # was ended by a signal is noise.
    answer=tcg
    {
        timeout --signal=KILL 10 qemu-system-x86_64 -machine q35 -accel kvm -cpu host -smp 2 -m 512 \
            -nodefaults -no-user-config -display none -no-reboot -serial "file:$console" \
            -kernel "$image/vmlinuz" -initrd "$image/initrd" \
            -append "console=ttyS0 panic=-1 rdinit=/there-is-no-such-program" >/dev/null </dev/null &
        probe=$!
        for _ in {1..120}; do
            if ! kill -0 "$probe"; then break; fi
            sleep 0.1
        done
        if ! kill -0 "$probe" && wait "$probe" && grep -q 'Kernel panic' "$console"; then answer=kvm; fi
    } 2>/dev/null
    rm -f "$cache"/.accel-*
    echo "$answer" >"$known"
fi
cat "$known"
