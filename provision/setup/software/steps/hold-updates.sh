# A kernel or driver that upgrades itself under a running job breaks it; and a first boot's own
# package run holds the lock for a while. The units stop now, and stay masked at the next boots.
if [ -d /etc/apt ]; then
  cat > /etc/apt/apt.conf.d/90gpuctl << 'END'
APT::Periodic::Update-Package-Lists "0";
APT::Periodic::Unattended-Upgrade "0";
DPkg::Lock::Timeout "300";
Acquire::Retries "3";
END
  systemctl --no-reload mask --now apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service || true
  dpkg -l | awk '/^ii +linux-(image|headers|modules|aws)/ { print $2 }' | xargs -r apt-mark -q hold
else
  systemctl --no-reload mask --now dnf-automatic.timer dnf-automatic-install.timer || true
fi
