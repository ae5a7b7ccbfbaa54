#!/bin/sh
# Prints a policy whose tenants are the accounts of Slurm's share tree, with their shares as weights, so that the node is
# divided as the queue is. Usage, on a node with the client commands of Slurm:
#
#   weights.sh >/etc/tenantd/slurm.yaml && tenantctl check /etc/tenantd && tenantctl reload
#
# An account with accounts below it is a group. Jobs of its own users run in its tenant `jobs`, whose weight is the sum of theirs,
# as Slurm puts users and accounts beside each other. An account whose shares are `parent` has none of its own: its weight is 1.
PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
set -eu

tree=$(sshare --parsable2 --noheader --all --format=Account,User,RawShares)
printf '%s\n' "$tree" | awk -F '|' '
    # Slurm indents an account by one space below its parent; the row of a user has the name of the account as well.
    {
        depth = match($1, /[^ ]/) - 1
        name = substr($1, depth + 1)
        shares = $3 ~ /^[0-9]+$/ ? $3 : 1
    }
    $2 != "" { users[name] += shares; next }
    {
        n++
        level[n] = depth
        names[n] = name
        weights[n] = shares
    }
    function indent(depth) { return sprintf("%" 4 * depth + 2 "s", "") }
    END {
        print "# From the share tree of Slurm."
        print "version: 1"
        print "tenants:"
        for (i = 1; i <= n; i++) {
            # The root of the tree is the node itself.
            if (level[i] == 0) continue
            depth = level[i] - 1
            # A weight is at least 1 for tenantd; no shares mean the least there is.
            weight = weights[i] > 0 ? weights[i] : 1
            printf "%s%s:\n%s  weight: %s\n", indent(depth), names[i], indent(depth), weight
            if (i < n && level[i + 1] > level[i]) {
                printf "%s  tenants:\n", indent(depth)
                if (names[i] in users) printf "%sjobs: { weight: %s }\n", indent(depth + 1), users[names[i]]
            }
        }
        if (n < 2) { print "weights.sh: sshare names no account" | "cat >&2"; exit 1 }
    }'
