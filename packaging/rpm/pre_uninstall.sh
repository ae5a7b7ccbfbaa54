# $1 is 0 if the package is removed permanently. Stopping the daemon restores all values.
if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ]; then
        systemctl --no-reload disable --now tenantd-nri.service tenantd-serve.service tenantd.socket tenantd.service || :
    fi
    # Values that cannot be restored are printed.
    tenantd --restore >/dev/null || :
    if [ -d /run/systemd/system ]; then
        # Stop the slice of all tenants too, unless units run in it: stopping it would end them.
        lived_in=
        for unit in $(systemctl show --property=RequiredBy --value tenants.slice); do
            case $(systemctl is-active "$unit") in
                inactive | failed | unknown) ;;
                *) lived_in=yes ;;
            esac
        done
        if [ -z "$lived_in" ]; then
            systemctl stop tenants.slice || :
        fi
    fi
fi
