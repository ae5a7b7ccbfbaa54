# $1 is how many versions are left.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ "$1" -ge 1 ]; then
        systemctl try-restart tenantd.service tenantd-serve.service || :
    fi
fi
if [ "$1" -eq 0 ]; then
    rm -rf /run/tenantd /var/lib/tenantd
fi
