#!/bin/sh
# Epilog of slurmd: removes the cgroup that the prolog made for a job that never started a step on this node, and writes the reason
# of a kill for lack of memory into the comment of the job (sacct --format=SystemComment).
#
# In slurm.conf:  Epilog=/etc/slurm/tenantd-epilog.sh
#
# Slurm removes the cgroup of a job with its last step. An allocation without a step (`salloc`, the further nodes of `sbatch`) has
# none, so its cgroup would stay, and be attached, until the next boot. tenantd drops a cgroup that is gone by itself. rmdir refuses
# one with processes. An epilog that fails drains the node, so this one never does.
#
# `scontrol update` refuses a job that has ended, so the comment is written into the accounting database (slurmdbd). tenantd knows
# of the kill with its next tick, and the database of the end a moment later. No node waits for that: a process of its own does.
PATH=/usr/sbin:/usr/bin:/sbin:/bin

for scope in /system.slice/slurmstepd.scope "/system.slice/${SLURMD_NODENAME-}_slurmstepd.scope"; do
    rmdir "/sys/fs/cgroup$scope/job_$SLURM_JOB_ID" 2>/dev/null
done

# Prints the last kill in the job, as a sentence.
reason() {
    tenantctl status --json |
        sed -n 's#.*"cgroup":"[^"]*/job_'"$SLURM_JOB_ID"'/[^"]*"[^}]*"text":"\(\(\\.\|[^"\\]\)*\)".*#\1#p'
}

comment() {
    for pause in 2 2 4 8 16; do
        sleep "$pause"
        text=$(reason)
        if [ -z "$text" ]; then return; fi
        # It prints nothing about a job whose end is not in the database yet.
        done=$(sacctmgr --immediate modify job where "jobid=$SLURM_JOB_ID" set "systemcomment=tenantd: $text")
        case $done in *Modified*) return ;; esac
    done
    logger --tag tenantd-epilog --priority daemon.warning "job $SLURM_JOB_ID was killed: $text (the comment was not written: $done)"
}

case ${1-} in
    comment) comment >/dev/null 2>&1 ;;
    *) if command -v sacctmgr >/dev/null; then setsid --fork "$0" comment </dev/null >/dev/null 2>&1; fi ;;
esac
exit 0
