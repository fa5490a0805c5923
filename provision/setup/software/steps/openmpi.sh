# Shells that are no login shells, and units, search /usr/local/bin; AWS puts its builds aside.
for gpuctl_folder in /opt/amazon/openmpi /opt/amazon/openmpi5; do
  if [ -x $gpuctl_folder/bin/mpirun ] &&
    $gpuctl_folder/bin/mpirun --version | grep -q "(Open MPI) ${gpuctl_openmpi:-[0-9]}\."; then
    ln -sf $gpuctl_folder/bin/* /usr/local/bin/
    break
  fi
done
if ! command -v mpirun; then
  if command -v apt-get > /dev/null; then
    gpuctl_install openmpi-bin
  else
    gpuctl_install openmpi
    ln -sf /usr/lib64/openmpi/bin/* /usr/local/bin/
  fi
fi
mpirun --version
if ! mpirun --version | grep -q "(Open MPI) ${gpuctl_openmpi:-[0-9]}\."; then
  echo "software.openmpi is ${gpuctl_openmpi:-any}, and this image has no such Open MPI"
  exit 1
fi
