# NVSwitch works with a fabric manager of the driver's very version alone.
gpuctl_install "nvidia-fabricmanager-$gpuctl_driver=$(modinfo -F version nvidia)*"
# Blackwell's switches have a subnet manager beside it, where the repository carries one.
if apt-cache show nvlsm > /dev/null 2>&1; then
  gpuctl_install nvlsm
fi
systemctl enable --now nvidia-fabricmanager
