gpuctl_checkout https://github.com/NVIDIA/nccl.git "$gpuctl_nccl_commit" /opt/nccl
make -s -C /opt/nccl -j "$(nproc)" src.build CUDA_HOME=/usr/local/cuda \
  NVCC_GENCODE="-gencode=arch=compute_$gpuctl_sm,code=sm_$gpuctl_sm"
printf '/opt/nccl/build/lib\n/usr/local/cuda/lib64\n' > /etc/ld.so.conf.d/gpuctl-nccl.conf
ldconfig
