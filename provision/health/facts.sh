# Prints what this node knows about its GPUs, network and software: `=== NAME` begins a section, the
# output of one command follows, `=== exit N` ends it. The variables come from gather.py: `form` is
# `full`, `short` or `deep`, `names` are the cluster's nodes, `disks` are folders, `gpus`, `efa` and
# `nvswitch` say what the type has. A command that hangs is ended, and those like it are left out.
exec 2> /dev/null
export LC_ALL=C

section() {
  local name=$1 limit=$2
  shift 2
  printf '=== %s\n' "$name"
  timeout -k 1 "$limit" "$@" 2>&1 < /dev/null | head -c 262144
  set -- "${PIPESTATUS[@]}"
  printf '\n=== exit %s\n' "$1"
  [ "$1" -ne 124 ] && [ "$1" -ne 137 ]
}

# As `section`, for programs that neither hang nor print much: fewer processes on every node.
quick_section() {
  printf '=== %s\n' "$1"
  "${@:2}" 2>&1 < /dev/null
  printf '\n=== exit %s\n' "$?"
}

ask_gpus() {
  local fields=index,name,pci.bus_id,driver_version,persistence_mode
  fields=$fields,ecc.errors.uncorrected.volatile.total
  section gpus "$1" nvidia-smi --query-gpu=$fields --format=csv,noheader
}

ask_gpus_in_full() {
  local kind fields=
  for kind in hw_slowdown hw_thermal_slowdown hw_power_brake_slowdown sw_thermal_slowdown; do
    fields=$fields,clocks_event_reasons.$kind
  done
  # Drivers before 535 have the old names alone.
  section throttle 15 bash -c 'nvidia-smi --query-gpu="$0" --format=csv,noheader ||
    nvidia-smi --query-gpu="${0//event/throttle}" --format=csv,noheader' "index$fields" || return
  fields=gpu_bus_id,remapped_rows.uncorrectable,remapped_rows.pending,remapped_rows.failure
  section remap 15 nvidia-smi --query-remapped-rows=$fields --format=csv,noheader || return
  [ -z "$nvswitch" ] || section nvlink 15 nvidia-smi nvlink --status
}

kernel_log() {
  local log
  log=$(timeout -k 1 10 dmesg) || { # in a container
    [ "$form" = full ] && log=$(timeout -k 1 10 journalctl --dmesg --boot --output=cat --lines=20000)
  } || return
  grep -E 'NVRM: Xid|SXid' <<< "$log" | tail -n 200
}

# Where root may not raise it, it is a container's, and the limit of the container's host.
memlock() {
  (ulimit -l unlimited) && ulimit -l
}

efa_in_kernel() {
  local device
  for device in /sys/class/infiniband/*; do
    [ ! "$device/device/driver" -ef /sys/bus/pci/drivers/efa ] || echo "${device##*/}"
  done
}

gpudirect() {
  local path
  for path in /sys/class/infiniband/*/device/p2p; do
    [ ! -r "$path" ] || echo "p2p $(cat "$path")"
  done
  "$(command -v fi_info || echo /opt/amazon/efa/bin/fi_info)" -p efa -t FI_EP_RDM -c FI_HMEM |
    sed -n 's/^ *domain: */hmem /p' | sort -u
}

versions() {
  echo "kernel $(uname -r)"
  # shellcheck disable=SC1091  # the node's file
  [ ! -r /etc/os-release ] || (. /etc/os-release && echo "system $PRETTY_NAME")
  echo "EFA installer $(sed -n 's/^# EFA installer version: *//p' /opt/amazon/efa_installed_packages)"
  echo "EFA driver $(cat /sys/module/efa/version)"
  # shellcheck disable=SC2012  # names of libraries
  echo "NCCL $(ls /opt/nccl/build/lib/libnccl.so.2.* /usr/local/cuda*/lib*/libnccl.so.2.* \
    /usr/lib/*-linux-gnu/libnccl.so.2.* | sed 's/.*libnccl.so.//' | sort -u | paste -s -d ' ')"
  echo "CUDA $(readlink -f /usr/local/cuda | sed 's/.*cuda-//')"
  echo "Open MPI $(mpirun --version | sed -n 's/.*(Open MPI) //p')"
}
export -f gpudirect versions

# NCCL between the GPUs of this node over the network alone, as between nodes.
loopback() {
  export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
  mpirun --allow-run-as-root --bind-to none --oversubscribe -np "$1" \
    -x NCCL_P2P_DISABLE -x NCCL_SHM_DISABLE \
    /root/nccl-tests/build/all_reduce_perf -b 64K -e 1G -f 16 -g 1 -n 20 -w 5 -c 1
}
export -f loopback

if [ "$form" = deep ]; then
  if [ "$gpus" -gt 0 ]; then
    section dcgm 3600 dcgmi diag -r 3 -j
  fi
  if [ "$gpus" -gt 1 ] && [ "$efa" -gt 0 ]; then
    section loopback 600 bash -lc 'loopback "$0"' "$gpus"
  fi
  exit 0
fi

quick_section clock date +%s.%N
quick_section kernel kernel_log
quick_section memlock memlock
# shellcheck disable=SC2086  # a list of folders
quick_section disk timeout -k 1 10 df -k --output=size,avail,itotal,iavail,target $disks
if [ "$gpus" -gt 0 ]; then
  ask_gpus 20 && [ "$form" = full ] && ask_gpus_in_full
fi
[ "$efa" -eq 0 ] || quick_section efa efa_in_kernel
if [ "$form" = full ]; then
  [ "$efa" -eq 0 ] || section gpudirect 15 bash -c gpudirect
  section versions 15 bash -c versions
  # shellcheck disable=SC2086  # a list of names
  section names 10 getent hosts $names
  [ -z "$verify" ] || section verify 90 "$verify"
fi
quick_section clock-end date +%s.%N
exit 0
