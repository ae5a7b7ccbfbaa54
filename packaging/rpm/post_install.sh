# $1 is 1 at the first installation, 2 at an upgrade. Whether the units are enabled is the preset's to say.
systemd-sysusers tenantd.conf || :
systemd-tmpfiles --create tenantd.conf || :
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    # A socket that an earlier version made gets the mode and the group of the unit.
    if [ -S /run/tenantd/socket ]; then
        chmod "$(systemctl show -p SocketMode --value tenantd.socket)" /run/tenantd/socket || :
        chgrp "$(systemctl show -p SocketGroup --value tenantd.socket)" /run/tenantd/socket || :
    fi
fi
if [ "$1" -eq 1 ]; then
    systemctl --no-reload preset tenantd.socket tenantd.service || :
fi
