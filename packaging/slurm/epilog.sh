#!/bin/sh
# Epilog of slurmd: ends what the prolog began. It removes the cgroup that the prolog made for a job that never started a step on
# this node, and writes the reason into the comment of a job that died for lack of memory.
#
# In slurm.conf:  Epilog=/etc/slurm/tenantd-epilog.sh
#
# Slurm removes the cgroup of a job with its last step. An allocation without a step (`salloc`, the further nodes of `sbatch`) has
# none, so its cgroup would stay, and be attached, until the next boot. tenantd drops a cgroup that is gone by itself. rmdir refuses
# one with processes. An epilog that fails drains the node, so this one never does.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH

for scope in /system.slice/slurmstepd.scope "/system.slice/${SLURMD_NODENAME-}_slurmstepd.scope"; do
    rmdir "/sys/fs/cgroup$scope/job_$SLURM_JOB_ID" 2>/dev/null
done

# tenantd knows of a death within two seconds. The node is free for the next job meanwhile, so this waits in a session of its own:
# slurmd ends the group of an epilog with it. `status` has the last eight deaths of each tenant, with the cgroup just before the text.
# shellcheck disable=SC2016  # the names are for the inner shell
setsid sh -c '
    for second in 1 2 3; do
        sleep 1
        reason=$(tenantctl status --json 2>/dev/null | tr -d "\n" | tr "{" "\n" |
            sed -n "s|.*\"cgroup\": *\"[^\"]*/job_$SLURM_JOB_ID/[^\"]*\", *\"text\": *\"\([^\"]*\)\".*|\1|p" | tail -n 1)
        if [ -n "$reason" ]; then exec scontrol update "JobId=$SLURM_JOB_ID" "Comment=tenantd: $reason"; fi
    done' </dev/null >/dev/null 2>&1 &
exit 0
