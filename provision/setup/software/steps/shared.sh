mkdir -p "$gpuctl_shared_path"
if ! grep -q " $gpuctl_shared_path " /etc/fstab; then
  echo "$gpuctl_shared $gpuctl_shared_path $gpuctl_mount,_netdev,nofail 0 0" >> /etc/fstab
fi
systemctl daemon-reload
# An EFS has its mount target while this machine boots; names are known some time after it is there.
for gpuctl_try in {1..60}; do
  if mountpoint -q "$gpuctl_shared_path" || mount "$gpuctl_shared_path"; then
    break
  fi
  echo "not there yet, try $gpuctl_try of 60"
  sleep 10
done
mountpoint -q "$gpuctl_shared_path"
