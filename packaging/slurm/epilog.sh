#!/bin/sh
# Epilog of slurmd: removes the cgroup that the prolog made for a job that never started a step on this node.
#
# In slurm.conf:  Epilog=/etc/slurm/tenantd-epilog.sh
#
# Slurm removes the cgroup of a job with its last step. An allocation without a step (`salloc`, the further nodes of `sbatch`) has
# none, so its cgroup would stay, and be attached, until the next boot. tenantd drops a cgroup that is gone by itself. rmdir refuses
# one with processes. An epilog that fails drains the node, so this one never does.
PATH=/usr/sbin:/usr/bin:/sbin:/bin

for scope in /system.slice/slurmstepd.scope "/system.slice/${SLURMD_NODENAME-}_slurmstepd.scope"; do
    rmdir "/sys/fs/cgroup$scope/job_$SLURM_JOB_ID" 2>/dev/null
done
exit 0
