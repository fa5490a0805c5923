# EFA registers memory. Where raising the limit is not permitted, asking for it would lock out ssh.
if (ulimit -l unlimited) 2> /dev/null; then
  printf '%s - memlock unlimited\n' '*' root > /etc/security/limits.d/90-gpuctl.conf
  mkdir -p /etc/systemd/system.conf.d
  printf '[Manager]\nDefaultLimitMEMLOCK=infinity\n' > /etc/systemd/system.conf.d/gpuctl.conf
  systemctl daemon-reexec
else
  echo "locked memory stays at $(ulimit -l) KiB: this machine does not permit more"
fi
