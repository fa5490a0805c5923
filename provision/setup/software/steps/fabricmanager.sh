# NVSwitch works only with a fabric manager of the driver's version. From R580 on NVIDIA's package
# has no branch in its name.
gpuctl_running=$(modinfo -F version nvidia)
gpuctl_branch=nvidia-fabricmanager-${gpuctl_running%%.*}
apt-get update -q
gpuctl_seen=$(apt-cache madison nvidia-fabricmanager "$gpuctl_branch" | tr -d ' ')
gpuctl_chosen=$(grep -m 1 -F "|$gpuctl_running-" <<< "$gpuctl_seen" | cut -d '|' -f 1,2 | tr '|' =)
if [ -z "$gpuctl_chosen" ]; then
  echo "no nvidia-fabricmanager and no $gpuctl_branch has the driver's version $gpuctl_running;" \
    "the repositories have: ${gpuctl_seen:-neither}"
  exit 1
fi
gpuctl_install "$gpuctl_chosen"
# Blackwell's switches are managed through InfiniBand. Ubuntu's kernels for AWS have its module in
# linux-modules, which is always installed, and do not load it by themselves.
if [ -n "$gpuctl_nvlink5" ]; then
  gpuctl_install infiniband-diags nvlsm
  echo ib_umad > /etc/modules-load.d/gpuctl.conf
  modprobe ib_umad
fi
