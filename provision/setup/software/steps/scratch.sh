# A service of its own: at each boot, and long after the set-up is done, the disks are mounted again.
mkdir -p /opt/gpuctl
cat > /opt/gpuctl/scratch << 'END'
#!/bin/bash
# Mounts this machine's NVMe disks, striped, at $1. They keep their data over a reboot, and come
# empty to a machine that was stopped: only disks without our file system are formatted.
set -e
if mountpoint -q "$1"; then
  exit 0
fi
mkdir -p "$1"
# A Deep Learning AMI has striped and mounted them already: that is shown at $1 too.
if [ -e /etc/systemd/system/dlami-nvme.service ] || [ -e /lib/systemd/system/dlami-nvme.service ]; then
  timeout 120 systemctl start dlami-nvme.service || true
fi
if mountpoint -q /opt/dlami/nvme; then
  mount --bind /opt/dlami/nvme "$1"
  exit 0
fi
disks=()
for disk in $(lsblk -dnpo NAME,MODEL | sed -n 's/ *Amazon EC2 NVMe Instance Storage *$//p'); do
  if [ -e "$disk" ]; then
    disks+=("$disk")
  fi
done
if [ ${#disks[@]} -eq 0 ]; then
  echo "no NVMe disk of its own is seen: nothing is mounted at $1"
  exit 0
fi
if [ ${#disks[@]} -gt 1 ]; then
  mdadm --assemble --scan || true
fi
device=$(blkid -L gpuctl) || device=
if [ -z "$device" ]; then
  device=${disks[0]}
  if [ ${#disks[@]} -gt 1 ]; then
    device=/dev/md/gpuctl
    mdadm --create "$device" --run --homehost=any --level=0 "--raid-devices=${#disks[@]}" "${disks[@]}"
  fi
  # Without -K it would discard every block first, which takes minutes.
  mkfs.xfs -q -f -K -L gpuctl "$device"
fi
mount -o noatime "$device" "$1"
chmod 1777 "$1"
END
chmod 755 /opt/gpuctl/scratch
cat > /etc/systemd/system/gpuctl-scratch.service << END
[Unit]
Description=The instance's own disks at $gpuctl_scratch
After=dlami-nvme.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/opt/gpuctl/scratch $gpuctl_scratch
[Install]
WantedBy=multi-user.target
END
# It is for the next boots: systemd need not read all its units again now.
systemctl --no-reload enable gpuctl-scratch.service
if lsblk -dno MODEL | grep -q 'Amazon EC2 NVMe Instance Storage' &&
  ! { command -v mdadm && command -v mkfs.xfs; }; then
  gpuctl_install mdadm xfsprogs
fi
/opt/gpuctl/scratch "$gpuctl_scratch"
