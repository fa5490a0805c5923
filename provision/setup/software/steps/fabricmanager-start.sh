# Its start fails until the GPUs' part of the fabric is ready, which takes up to some minutes after
# each boot: systemd tries again for ten minutes.
if systemctl cat nvidia-fabricmanager > /dev/null 2>&1; then
  mkdir -p /etc/systemd/system/nvidia-fabricmanager.service.d
  cat > /etc/systemd/system/nvidia-fabricmanager.service.d/gpuctl.conf << 'END'
[Unit]
StartLimitIntervalSec=1200
StartLimitBurst=60
[Service]
Restart=on-failure
RestartSec=10
END
  systemctl enable nvidia-fabricmanager # it reloads systemd's units, and so the file above
  if ! systemctl -q is-active nvidia-fabricmanager; then
    systemctl reset-failed nvidia-fabricmanager || true
    systemctl start --no-block nvidia-fabricmanager
  fi
  for gpuctl_try in {1..120}; do
    if systemctl -q is-active nvidia-fabricmanager; then
      break
    elif [ "$gpuctl_try" -eq 120 ]; then
      echo "it did not start in ten minutes:"
      journalctl -u nvidia-fabricmanager --no-pager -n 20
      exit 1
    fi
    sleep 5
  done
fi
