# Compares this node with what its type has and its cluster asked for: a line per check. Exit code
# 1 when one failed. Expected values stand above; 0 and empty ones are not checked.
gpuctl_failed=0

gpuctl_check() {
  if [ "$2" = "$3" ]; then
    echo "ok: $1: $3"
  else
    echo "failed: $1: expected $2, actual ${3:-nothing}"
    gpuctl_failed=1
  fi
}

gpuctl_efa_devices() {
  "$(command -v fi_info || echo /opt/amazon/efa/bin/fi_info)" -p efa -t FI_EP_RDM 2> /dev/null |
    sed -n 's/^ *domain: *//p' | sort -u | wc -l
}

if [ "$gpuctl_gpus" -gt 0 ]; then
  if gpuctl_seen=$(nvidia-smi -L 2>&1); then
    gpuctl_seen=$(grep -c '^GPU ' <<< "$gpuctl_seen")
  else
    gpuctl_seen=$(head -n 1 <<< "$gpuctl_seen")
  fi
  gpuctl_check GPUs "$gpuctl_gpus" "$gpuctl_seen"
  if gpuctl_seen=$(dcgmi discovery -l 2> /dev/null); then
    gpuctl_seen=$(sed -n 's/^\([0-9]*\) GPUs\{0,1\} found.*/\1/p' <<< "$gpuctl_seen")
    gpuctl_check 'GPUs that DCGM finds' "$gpuctl_gpus" "$gpuctl_seen"
  fi
  gpuctl_running=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2> /dev/null |
    sort -u | head -n 1)
  if [ -n "$gpuctl_driver" ]; then
    gpuctl_check 'NVIDIA driver branch' "$gpuctl_driver" "${gpuctl_running%%.*}"
  fi
  if [ -n "$gpuctl_nvswitch" ]; then
    gpuctl_seen=$(nv-fabricmanager --version 2> /dev/null | sed 's/.*: *//')
    gpuctl_check 'fabric manager version' "${gpuctl_running:-a driver}" "$gpuctl_seen"
    gpuctl_check 'fabric manager' active "$(systemctl is-active nvidia-fabricmanager)"
  fi
  if [ -n "$gpuctl_nccl" ]; then
    gpuctl_seen=$(find /opt/nccl/build/lib /usr/local/cuda*/ /usr/lib/x86_64-linux-gnu \
      -name 'libnccl.so.2.*' -printf '%f\n' 2> /dev/null | sort -u | paste -s -d ' ')
    if [[ " $gpuctl_seen " == *" libnccl.so.${gpuctl_nccl%-*} "* ]]; then
      gpuctl_seen=libnccl.so.${gpuctl_nccl%-*}
    fi
    gpuctl_check NCCL "libnccl.so.${gpuctl_nccl%-*}" "$gpuctl_seen"
  fi
  if [ -x /root/nccl-tests/build/all_reduce_perf ]; then
    gpuctl_check nccl-tests present present
    # A job has the environment of a login: NCCL and CUDA must be found in it. mpirun finds MPI's.
    gpuctl_seen=$(bash -lc 'ldd /root/nccl-tests/build/all_reduce_perf' 2> /dev/null |
      sed -n 's/^[[:space:]]*\(lib\(nccl\|cudart\)[^ ]*\) => not found.*/\1/p' | sort -u | paste -s -d ' ')
    gpuctl_check 'libraries of nccl-tests' found "${gpuctl_seen:+no }${gpuctl_seen:-found}"
  else
    gpuctl_check nccl-tests present absent
  fi
fi
if [ "$gpuctl_efa_count" -gt 0 ]; then
  # Some types have their devices only some seconds after the boot.
  for gpuctl_try in 1 2 3; do
    gpuctl_seen=$(gpuctl_efa_devices)
    if [ "$gpuctl_seen" -ge "$gpuctl_efa_count" ] || [ "$gpuctl_try" -eq 3 ]; then
      break
    fi
    sleep 5
  done
  gpuctl_check 'EFA devices' "$gpuctl_efa_count" "$gpuctl_seen"
  if [ -n "$gpuctl_efa" ]; then
    gpuctl_seen=$(sed -n 's/^# EFA installer version: *//p' /opt/amazon/efa_installed_packages)
    gpuctl_check 'EFA installer' "$gpuctl_efa" "$gpuctl_seen"
  fi
  gpuctl_seen=$(find /opt/amazon/ofi-nccl -name 'libnccl-net*.so*' 2> /dev/null | head -n 1)
  if [ -n "$gpuctl_seen" ]; then
    # NCCL loads it with dlopen, which ldd of nccl-tests does not show. A profile may print too.
    if gpuctl_error=$(bash -lc 'trap - 0
      exec python3 -c "import ctypes, sys; ctypes.CDLL(sys.argv[1])" "$0" 2>&1' \
      "$gpuctl_seen" 2> /dev/null); then
      gpuctl_seen=loads
    else
      gpuctl_seen=${gpuctl_error##*$'\n'}
    fi
  fi
  gpuctl_check 'NCCL plugin for EFA' loads "$gpuctl_seen"
fi
gpuctl_seen=$(mpirun --version 2> /dev/null | sed -n 's/.*(Open MPI) \([0-9]*\)\..*/\1/p')
gpuctl_check 'Open MPI' "${gpuctl_openmpi:-${gpuctl_seen:-4 or 5}}" "$gpuctl_seen"
for gpuctl_path in $gpuctl_mounts; do
  gpuctl_seen=$(mountpoint -q "$gpuctl_path" && echo mounted)
  gpuctl_check "$gpuctl_path" mounted "$gpuctl_seen"
done
exit $gpuctl_failed
