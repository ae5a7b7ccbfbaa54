# $1 is how many versions are left.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ "$1" -ge 1 ]; then
        systemctl try-restart tenantd.service tenantd-serve.service tenantd-nri.service || :
    fi
fi
# What could not be put back is in the journal, for a tenantd that is installed again.
if [ "$1" -eq 0 ] && [ ! -s /run/tenantd/journal ] && [ ! -s /run/tenantd/journal.damaged ]; then
    rm -rf /run/tenantd
fi
# There is no purge here: the history of the last day goes with the program.
if [ "$1" -eq 0 ]; then
    rm -rf /var/lib/tenantd
fi
# cargo-generate-rpm packs files alone, and their directories stay when they go.
if [ "$1" -eq 0 ]; then
    for dir in doc/tenantd/examples/monitoring doc/tenantd/examples/login doc/tenantd/examples doc/tenantd licenses/tenantd; do
        rmdir "/usr/share/$dir" 2>/dev/null || :
    done
fi
