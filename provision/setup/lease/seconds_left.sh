# Prints the seconds until this machine powers off; `none` without a lifetime.
timer=/etc/systemd/system/gpuctl-lifetime.timer
at=$(sed -n 's/^OnCalendar=//p' $timer 2> /dev/null)
if [ -z "$at" ]; then
    echo none
    exit
fi
left=$(($(date -u -d "$at" +%s) - $(date +%s)))
uptime=$(sed -n 's/^Uptime=//p' $timer)
if [ -n "$uptime" ] && grep -qx "Boot=$(cat /proc/sys/kernel/random/boot_id)" $timer; then
    monotonic=$((uptime - $(cut -d. -f1 /proc/uptime)))
    [ $monotonic -ge $left ] || left=$monotonic
fi
echo $left
