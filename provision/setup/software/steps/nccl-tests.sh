# Where jobs look for them: /root/nccl-tests/build. The image's own serve unless a version is asked.
gpuctl_build=/root/nccl-tests/build
gpuctl_own=
for gpuctl_folder in /usr/local/cuda*/efa/test-cuda-*; do
  if [ -x "$gpuctl_folder/all_reduce_perf" ]; then
    gpuctl_own=$gpuctl_folder
  fi
done
if [ -z "$gpuctl_nccl_tests_asked" ] && [ -x $gpuctl_build/all_reduce_perf ]; then
  echo "the image has them"
elif [ -z "$gpuctl_nccl_tests_asked" ] && [ -n "$gpuctl_own" ]; then
  mkdir -p /root/nccl-tests
  ln -sfn "$gpuctl_own" $gpuctl_build
  # The image may leave its libraries to LD_LIBRARY_PATH, which a login then does not have.
  if bash -lc "ldd $gpuctl_build/all_reduce_perf" | grep -q 'lib\(nccl\|cudart\).* => not found'; then
    printf '%s\n' "${gpuctl_own%/efa/*}"/{lib,lib64,efa/lib} > /etc/ld.so.conf.d/gpuctl-nccl-tests.conf
    ldconfig
  fi
elif [ -z "$gpuctl_nccl_tests_asked" ] && [ -f /usr/src/nccl-tests/Makefile ]; then
  if command -v apt-get > /dev/null; then
    gpuctl_install gcc libc6-dev make libopenmpi-dev
  else
    gpuctl_install gcc make openmpi-devel
  fi
  make -C /usr/src/nccl-tests MPI=1 BUILDDIR=$gpuctl_build
elif [ -n "$gpuctl_sm" ] && [ -x /usr/local/cuda/bin/nvcc ]; then
  gpuctl_mpi=$(dirname "$(dirname "$(readlink -f "$(command -v mpirun)")")")
  if [ "$gpuctl_mpi" = /usr ]; then
    gpuctl_install libopenmpi-dev
    gpuctl_mpi=/usr/lib/x86_64-linux-gnu/openmpi
  fi
  gpuctl_arguments=()
  if [ -d /opt/nccl/build ]; then
    gpuctl_arguments=(NCCL_HOME=/opt/nccl/build)
  fi
  gpuctl_checkout https://github.com/NVIDIA/nccl-tests.git "$gpuctl_nccl_tests_commit" \
    /root/nccl-tests
  make -s -C /root/nccl-tests -j "$(nproc)" MPI=1 MPI_HOME="$gpuctl_mpi" \
    CUDA_HOME=/usr/local/cuda "${gpuctl_arguments[@]}" \
    NVCC_GENCODE="-gencode=arch=compute_$gpuctl_sm,code=sm_$gpuctl_sm"
else
  echo "none: the image has neither them, nor their source in /usr/src/nccl-tests, nor CUDA"
fi
