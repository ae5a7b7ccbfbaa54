#!/usr/bin/env bash
# Boots one guest, lets its payload run, and says whether that went well.
#
# Usage: boot.sh [--shape flat|numa] [--limit SECONDS] [--patience SECONDS] IMAGE PAYLOAD
#   IMAGE    the folder that image.sh printed; it is only read, the guest writes to a throw-away layer
#   PAYLOAD  a folder; it becomes a second disk, mounted on /payload, whose ./start is run as root
#   shape    flat: 2 CPUs on one node (default); numa: 8 CPUs, 4 cores of 2 threads on 2 nodes
#   limit    what the guest may take from its start to its end; 1200 unless given
#   patience what it may take until its payload has written a line; 300 unless given. It takes some 20.
#
# The payload writes lines to /dev/virtio-ports/results; they appear on standard output as they come.
# The last one must read `N passed, N failed, N skipped`. The exit status is 0 only when that line
# came, nothing failed, something passed, and the machine then went off by itself: a guest that
# panics, hangs or loses its runner is a failure, however well it looked until then.
#
# TENANTD_VM_ACCEL is `tcg` (default), `kvm` (see accel.sh) or `icount`: emulated, and the guest's clock counts the
# instructions of its processors, so that what runs beside it on this machine changes none of its figures; or `exact`: the
# same, without waiting while the guest is idle. TENANTD_VM_MEMORY is the memory of the flat shape in MiB, 1536 unless given.
set -euo pipefail

shape=flat
limit=1200
patience=300
while [[ ${1:-} == --* ]]; do
    case $1 in
        --shape) shape=$2 ;;
        --limit) limit=$2 ;;
        --patience) patience=$2 ;;
        *) echo "boot.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift 2
done
image=${1:?usage: boot.sh [--shape flat|numa] [--limit SECONDS] [--patience SECONDS] IMAGE PAYLOAD}
payload=${2:?usage: boot.sh [--shape flat|numa] [--limit SECONDS] [--patience SECONDS] IMAGE PAYLOAD}

case $shape in
    flat) hardware=(-smp 2 -m "${TENANTD_VM_MEMORY:-1536}") ;;
    numa) hardware=(-smp "8,sockets=2,cores=2,threads=2" -m 2048
        -object "memory-backend-ram,id=m0,size=1G" -object "memory-backend-ram,id=m1,size=1G"
        -numa "node,nodeid=0,cpus=0-3,memdev=m0" -numa "node,nodeid=1,cpus=4-7,memdev=m1") ;;
    *) echo "boot.sh: unknown shape $shape" >&2; exit 2 ;;
esac

work=$(mktemp -d "${TMPDIR:-/tmp}/tenantd-vm.XXXXXX")
qemu=
clean_up() {
    if [[ -n $qemu ]]; then
        kill -TERM "$qemu" 2>/dev/null || true
        wait "$qemu" || true
    fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

case ${TENANTD_VM_ACCEL:=tcg} in
    kvm) processors=(-accel kvm -cpu host) ;;
    # Without cx16: emulating cmpxchg16b on several processors, QEMU 7.2 spoils the flags register, and Linux 6.12,
    # whose allocator lives on that instruction, ends in a double fault at boot.
    tcg) processors=(-accel "tcg,thread=multi" -cpu "max,-cx16") ;;
    # An instruction takes 1 ns of all processors together: one thread runs them in turn, some milliseconds each. How much
    # work is done is exact; how long a program was on a processor is not, as it seems to run while others have their turn.
    icount) processors=(-accel "tcg,thread=single" -cpu "max,-cx16" -icount "shift=0") ;;
    # The same, and idle time is skipped: with a disk of the guest's kernel there is no real time in a measurement at all.
    exact) processors=(-accel "tcg,thread=single" -cpu "max,-cx16" -icount "shift=0,sleep=off") ;;
    *) echo "boot.sh: unknown TENANTD_VM_ACCEL $TENANTD_VM_ACCEL" >&2; exit 2 ;;
esac
# One clock for all processors is what emulation gives; Linux would not believe it and would use the
# slow HPET; nor would it believe in its timer, where the host is too busy to deliver one on time.
# PSI is off in Debian's kernels unless asked for.
kernel_arguments="root=/dev/vda rw console=ttyS0 quiet psi=1 tsc=reliable no_timer_check panic=-1"
# Emulation translates code once for each address: the same program at the same place starts twice as fast.
kernel_arguments+=" mitigations=off norandmaps"
kernel_arguments+=" systemd.unit=tenantd-scenarios.service"

# QEMU pauses a guest whose writes find no space, and waits without end. So a guest needs space for what it may write, and one
# that leaves too little is ended.
free_mib() { df --output=avail --block-size=1M "$work" | tail -n 1 | tr -d ' '; }
kib=$(($(du -sk "$payload" | cut -f1) * 5 / 4 + 16384))
space=$((1024 + kib / 1024))
if [[ $(free_mib) -lt $space ]]; then
    echo "FAIL $shape guest: $(free_mib) MiB are free for $work, a guest needs $space MiB: free some, or set TMPDIR"
    exit 1
fi
mke2fs -q -t ext4 -L payload -d "$payload" "$work/payload.img" "${kib}k" >/dev/null
# Runs the guest to its end; sets `status`, `silent` where it was ended because it said nothing, and `full` where space ran
# out. Further arguments are the kernel's.
boot() {
    # `timeout` ends the guest by its process id when the limit is over, even if this script is gone.
    TMPDIR=$work timeout --kill-after=5 "$limit" qemu-system-x86_64 \
        -machine q35 "${processors[@]}" "${hardware[@]}" \
        -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$image/vmlinuz" -initrd "$image/initrd" \
        -append "$kernel_arguments $*" \
        -drive "file=$image/root.img,if=virtio,format=raw,snapshot=on,cache=unsafe" \
        -drive "file=$work/payload.img,if=virtio,format=raw,readonly=on" \
        -serial "file:$work/console" \
        -device virtio-serial-pci -chardev "file,id=results,path=$work/results,append=on" \
        -device virtserialport,chardev=results,name=results \
        >"$work/qemu" 2>&1 </dev/null &
    qemu=$!
    tail -n "+$((seen + 1))" -f -s 0.2 --pid="$qemu" "$work/results" &
    tail=$!
    # Between two looks the shell notices that a guest has ended, as one that panics before its first line.
    local end=$((SECONDS + patience)) is_over=
    silent=yes
    while [[ -z $is_over ]]; do
        if [[ $(wc -l <"$work/results") -gt $seen ]]; then silent=; fi
        if [[ $(free_mib) -lt 64 ]]; then
            full=yes silent='' is_over=yes
        elif ! kill -0 "$qemu" 2>/dev/null; then
            silent='' is_over=yes
        elif [[ -n $silent && $SECONDS -ge $end ]]; then
            is_over=yes
        else
            # Looks cost the guest time, and its shares are judged.
            sleep 1
        fi
    done
    kill -TERM "$qemu" 2>/dev/null || true
    status=0
    wait "$qemu" || status=$?
    qemu=
    wait "$tail"
}
# A kernel with several CPUs rewrites its own code (text_poke), and emulated CPUs on a busy host sometimes run
# into the half-written instruction. No program can bring that about: a guest that panics so starts again, and
# goes on after the last scenario that was judged. Any other panic is a failure. An emulated guest has
# also been seen to stand still before its first program; it too starts again.
closes='^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$'
: >"$work/results"
full=
for _ in 1 2 3; do
    seen=$(wc -l <"$work/results")
    judged=$(sed -nE 's/^(ok|FAIL|skip) ([^: ]+).*/\2/p' "$work/results" | tail -n 1)
    boot ${judged:+"scenarios.after=$judged"}
    closing=$(tail -n 1 "$work/results")
    if [[ -n $full ]]; then break; fi
    if [[ -n $silent ]]; then
        echo "# the guest has said nothing for $patience s: once more"
        continue
    fi
    if [[ $closing =~ $closes ]] || ! grep -q 'Oops: int3' "$work/console"; then break; fi
    echo "# the guest's kernel ran into its own code patching: once more"
done

# What the guest said on its console is shown only when it is needed.
fail() {
    echo "FAIL $shape guest: $1"
    sed 's/^/    qemu: /' "$work/qemu"
    tail -n 60 "$work/console" | tr -d '\r' | sed 's/^/    console: /'
    exit 1
}
if [[ -n $full ]]; then fail "left less than 64 MiB free for $work, and was ended: free some, or set TMPDIR"; fi
if [[ -n $silent ]]; then fail "said nothing for $patience s, three times"; fi
case $status in
    0) ;;
    124 | 137) fail "did not finish within $limit s" ;;
    *) fail "qemu ended with status $status" ;;
esac
[[ $closing =~ $closes ]] || fail "ended without its closing line"
if [[ ${BASH_REMATCH[2]} -ne 0 ]] || grep -q '^FAIL ' "$work/results"; then exit 1; fi
[[ ${BASH_REMATCH[1]} -gt 0 ]] || grep -q '^ok ' "$work/results" || fail "passed nothing"
