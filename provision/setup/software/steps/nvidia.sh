# The open kernel modules of one branch, and CUDA's compiler, from NVIDIA's signed repository.
gpuctl_install build-essential dkms "linux-headers-$(uname -r)" curl ca-certificates gpg gpgv git
gpuctl_repository=https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64
gpuctl_url=$gpuctl_repository/cuda-keyring_1.1-1_all.deb
curl -fsSL --retry 5 -o /tmp/cuda-keyring.deb "$gpuctl_url"
# The package has the key that apt trusts for NVIDIA's repository.
if ! sha256sum --status --check <<< "$gpuctl_cuda_keyring  /tmp/cuda-keyring.deb"; then
  echo "$gpuctl_url has not the sha256 $gpuctl_cuda_keyring: removed, not installed"
  rm -f /tmp/cuda-keyring.deb
  exit 1
fi
dpkg -i /tmp/cuda-keyring.deb
apt-get update -q
apt-get install -y -q "nvidia-open-$gpuctl_driver" "cuda-toolkit-$gpuctl_cuda"
printf 'blacklist nouveau\noptions nouveau modeset=0\n' > /etc/modprobe.d/gpuctl-nouveau.conf
if grep -q '^nouveau ' /proc/modules || ! modprobe nvidia; then
  touch $gpuctl_state/reboot
fi
