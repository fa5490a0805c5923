# AWS's build of the Lustre client for the kernel that runs: FSx for Lustre User Guide, "Installing
# the Lustre client".
if ! command -v mount.lustre; then
  if command -v apt-get > /dev/null; then
    gpuctl_keys=/usr/share/keyrings/fsx-ubuntu-public-key.gpg
    curl -fsSL --retry 5 \
      https://fsx-lustre-client-repo-public-keys.s3.amazonaws.com/fsx-ubuntu-public-key.asc |
      gpg --batch --yes --dearmor -o $gpuctl_keys
    gpuctl_release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    gpuctl_repository=https://fsx-lustre-client-repo.s3.amazonaws.com/ubuntu
    echo "deb [signed-by=$gpuctl_keys] $gpuctl_repository $gpuctl_release main" \
      > /etc/apt/sources.list.d/fsxlustreclientrepo.list
    gpuctl_install "lustre-client-modules-$(uname -r)"
  else
    gpuctl_install lustre-client
  fi
fi
