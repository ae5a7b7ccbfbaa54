#!/bin/sh
# Wrapper of HTCondor's jobs: a job becomes a part of the tenant that has the name of its accounting group, or else of its
# owner, whatever the number of its slots.
#
# In the configuration of the execution point:  USER_JOB_WRAPPER = /etc/condor/tenantd-wrapper.sh
#
# HTCondor starts it in the cgroup of the job, as the user of the job, before the first process of it. (Its hooks run before that
# cgroup is made, or beside it.) A user may attach what is the user's own to tenants whose `allow` names the user, so a job
# cannot choose any other. A job without a tenant runs as it would without this wrapper.
PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH

of_job() {
    sed -n "s/^$1 = \"\(.*\)\"\$/\1/p" "$_CONDOR_JOB_AD" 2>/dev/null
}

group=$(of_job AcctGroup)
tenant=${group:-$(of_job Owner)}
cgroup=$(sed -n 's/^0:://p' /proc/self/cgroup)
said=$(tenantctl attach "$tenant" --cgroup "$cgroup" 2>&1) ||
    logger --tag tenantd-condor --priority daemon.notice "job $(of_job GlobalJobId) of $tenant: $said"
exec "$@"
