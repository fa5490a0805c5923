# AWS's build of the Lustre client for the kernel that runs: FSx for Lustre User Guide, "Installing
# the Lustre client".
if ! command -v mount.lustre; then
  if command -v apt-get > /dev/null; then
    if ! command -v curl > /dev/null || ! command -v gpg > /dev/null; then
      gpuctl_install curl ca-certificates gpg
    fi
    gpuctl_keys=/usr/share/keyrings/fsx-ubuntu-public-key.gpg
    gpuctl_url=https://fsx-lustre-client-repo-public-keys.s3.amazonaws.com/fsx-ubuntu-public-key.asc
    curl -fsSL --retry 5 "$gpuctl_url" | gpg --batch --yes --dearmor -o $gpuctl_keys
    # apt trusts every key of the file: it must have this one and no other.
    gpuctl_seen=$(gpg --batch --with-colons --show-keys $gpuctl_keys |
      awk -F: '$1 == "pub" { primary = 1 } $1 == "fpr" && primary { print $10; primary = 0 }')
    if [ "$gpuctl_seen" != "$gpuctl_fsx_key" ]; then
      rm -f $gpuctl_keys
      echo "$gpuctl_url is not AWS's key $gpuctl_fsx_key: removed, no Lustre client is installed"
      exit 1
    fi
    gpuctl_release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    gpuctl_repository=https://fsx-lustre-client-repo.s3.amazonaws.com/ubuntu
    echo "deb [signed-by=$gpuctl_keys] $gpuctl_repository $gpuctl_release main" \
      > /etc/apt/sources.list.d/fsxlustreclientrepo.list
    # AWS builds clients some weeks after a kernel, and none for some kernels.
    apt-get update -q
    if [ -z "$(apt-cache madison "lustre-client-modules-$(uname -r)")" ]; then
      gpuctl_seen=$(apt-cache pkgnames lustre-client-modules- | sed -n 's/.*modules-\([0-9]\)/\1/p' |
        sort -V | tail -n 3 | paste -s -d ' ')
      echo "AWS has no Lustre client for this image's kernel $(uname -r); its newest are for" \
        "${gpuctl_seen:-no kernel}: name an image (ami-...) with such a kernel, or take" \
        "storage.shared.type efs"
      exit 1
    fi
    gpuctl_install "lustre-client-modules-$(uname -r)"
  else
    gpuctl_install lustre-client
  fi
fi
