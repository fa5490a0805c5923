# GPU before EFA: its module for GPUDirect RDMA is built against NVIDIA's driver.
gpuctl_folder=$(mktemp -d)
cd "$gpuctl_folder"
gpuctl_tarball=aws-efa-installer-$gpuctl_efa.tar.gz
for gpuctl_file in "$gpuctl_tarball" "$gpuctl_tarball.sig" aws-efa-installer.key; do
  curl -fsSL --retry 5 -o "$gpuctl_file" "https://efa-installer.amazonaws.com/$gpuctl_file"
done
gpg --batch --dearmor < aws-efa-installer.key > key.gpg
if ! gpgv --keyring ./key.gpg --status-fd 1 "$gpuctl_tarball.sig" "$gpuctl_tarball" |
  grep -q "^\[GNUPG:\] VALIDSIG .*$gpuctl_efa_key$"; then
  echo "$gpuctl_tarball is not signed by AWS's key $gpuctl_efa_key: not installed"
  exit 1
fi
tar -xf "$gpuctl_tarball"
cd aws-efa-installer
./efa_installer.sh -y "--mpi=openmpi$gpuctl_openmpi"
# libfabric's shared memory reads other processes' memory.
echo 'kernel.yama.ptrace_scope = 0' > /etc/sysctl.d/90-gpuctl.conf
sysctl -q -p /etc/sysctl.d/90-gpuctl.conf || true
cd /root
rm -rf "$gpuctl_folder"
