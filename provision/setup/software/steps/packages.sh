gpuctl_install "${gpuctl_packages[@]}"
