# $1 is 0 where the package goes for good. Stopping the daemon puts everything back.
if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ]; then
        systemctl --no-reload disable --now tenantd-serve.service tenantd.socket tenantd.service || :
    fi
    tenantd --restore >/dev/null 2>&1 || :
fi
