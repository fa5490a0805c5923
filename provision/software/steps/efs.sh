# NFS with the options that AWS recommends: EFS User Guide, "Recommended NFS mount settings".
if ! command -v mount.nfs4; then
  if command -v apt-get > /dev/null; then
    gpuctl_install nfs-common
  else
    gpuctl_install nfs-utils
  fi
fi
mkdir -p "$gpuctl_shared_path"
if ! grep -q " $gpuctl_shared_path " /etc/fstab; then
  echo "$gpuctl_shared $gpuctl_shared_path nfs4 nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,_netdev,nofail 0 0" >> /etc/fstab
fi
systemctl daemon-reload
# The mount target is made while this machine boots, and its name is known some time after.
for gpuctl_try in {1..60}; do
  if mountpoint -q "$gpuctl_shared_path" || mount "$gpuctl_shared_path"; then
    break
  fi
  echo "not there yet, try $gpuctl_try of 60"
  sleep 10
done
mountpoint -q "$gpuctl_shared_path"
