# Sets when this machine powers off: $seconds from now, which EC2 answers with a termination.
# Two clocks count. OnActiveSec is the monotonic one: it is not prolonged if somebody sets the
# machine's clock back. It begins again at a reboot, for which OnCalendar is there.
at=$(date -u -d "+$seconds seconds" '+%Y-%m-%d %H:%M:%S UTC')
up=$(cut -d. -f1 /proc/uptime)
# A driver or a mount of Lustre can hang in the shutdown, which the machine then bills for. Its second
# poweroff asks the kernel, not systemd, and is late enough for the 45 s of a run's own end.
# Without the default dependencies the shutdown does not stop this unit.
cat > /etc/systemd/system/gpuctl-lifetime.service <<END
[Unit]
Description=The cluster's lifetime is over
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=-/bin/systemctl poweroff
ExecStart=/bin/sleep 60
ExecStart=/bin/systemctl poweroff -ff
END
cat > /etc/systemd/system/gpuctl-lifetime.timer.new <<END
[Unit]
Description=Powers off, and so terminates, when the cluster's lifetime is over
[Timer]
OnCalendar=$at
OnActiveSec=${seconds}s
Persistent=true
AccuracySec=1s
[Install]
WantedBy=timers.target
[X-Gpuctl]
Boot=$(cat /proc/sys/kernel/random/boot_id)
Uptime=$((up + seconds))
END
mv /etc/systemd/system/gpuctl-lifetime.timer.new /etc/systemd/system/gpuctl-lifetime.timer
systemctl daemon-reload
systemctl enable gpuctl-lifetime.timer
systemctl restart --no-block gpuctl-lifetime.timer
