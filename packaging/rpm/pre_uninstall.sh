# $1 is 0 where the package goes for good. Stopping the daemon puts everything back.
if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ]; then
        systemctl --no-reload disable --now tenantd-serve.service tenantd.socket tenantd.service || :
    fi
    # What cannot be put back is told.
    tenantd --restore >/dev/null || :
    if [ -d /run/systemd/system ]; then
        # The slice of all tenants goes too, unless somebody lives in it: stopping it would end them.
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
