#!/bin/sh
# Prolog of slurmd: a job becomes a part of the tenant that has the name of its account, in whatever group, and whatever else
# runs on the node. If the account is a group, it is the tenant `jobs` of that group (weights.sh).
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

# The path of the tenant: the metrics name each of them once, a group before its members.
weights=$(tenantctl metrics 2>/dev/null | sed -n 's/^tenantd_tenant_weight{tenant="\([^"]*\)"}.*/\1/p')
for name in "$account/jobs" "$account"; do
    path=$(printf '%s\n' "$weights" | awk -v name="$name" '$0 == name || substr($0, length - length(name)) == "/" name' | head -n 1)
    if [ -n "$path" ]; then break; fi
done

# A cgroup that is no tenant's is left to Slurm to make.
attach() {
    mkdir "/sys/fs/cgroup$job" || return 1
    tenantctl attach "${path:-$account}" --cgroup "$job" && return 0
    rmdir "/sys/fs/cgroup$job"
    return 1
}
said=$(attach 2>&1) ||
    logger --tag tenantd-prolog --priority daemon.warning "job $SLURM_JOB_ID of account $account: $said"
exit 0
