# An EFS needs no more than the distribution's own NFS client.
if ! command -v mount.nfs4; then
  if command -v apt-get > /dev/null; then
    gpuctl_install nfs-common
  else
    gpuctl_install nfs-utils
  fi
fi
