#!/bin/sh
# Prolog of slurmd: a job becomes a part of the tenant that has the name of its account, whatever else runs on the node.
#
# In slurm.conf:  ProctrackType=proctrack/cgroup
#                 Prolog=/etc/slurm/tenantd-prolog.sh
#                 PrologFlags=Alloc
#                 Epilog=/etc/slurm/tenantd-epilog.sh
#
# For Slurm's plugin cgroup/v2. It runs as root before the first process of the job, when the cgroup of the job is not there
# yet: Slurm takes one that is there, and removes it with the job. A job without a tenant runs as it would without this
# prolog. A prolog that fails drains the node, so this one only logs.
PATH=/usr/sbin:/usr/bin:/sbin:/bin

account=${SLURM_JOB_ACCOUNT:-$(scontrol --oneliner show job "$SLURM_JOB_ID" | sed -n 's/.* Account=\([^ ]*\).*/\1/p')}
# The second name is that of a Slurm that was built for several node daemons on one host, as Debian's is.
scope=/system.slice/slurmstepd.scope
if [ ! -d "/sys/fs/cgroup$scope" ]; then scope=/system.slice/${SLURMD_NODENAME-}_slurmstepd.scope; fi
job=$scope/job_$SLURM_JOB_ID

# A cgroup that is no tenant's is left to Slurm to make.
attach() {
    mkdir "/sys/fs/cgroup$job" || return 1
    tenantctl attach "$account" --cgroup "$job" && return 0
    rmdir "/sys/fs/cgroup$job"
    return 1
}
said=$(attach 2>&1) ||
    logger --tag tenantd-prolog --priority daemon.warning "job $SLURM_JOB_ID of account $account: $said"
exit 0
