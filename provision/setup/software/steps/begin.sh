#!/bin/bash
# Sets this node up, step by step. It runs at every boot: what is finished is not done again, and
# once all is done nothing is. The first failure ends it, and cloud-init reports it.
set -e
export HOME=/root DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
cd /root
gpuctl_state=/var/lib/gpuctl
mkdir -p $gpuctl_state
touch $gpuctl_state/steps $gpuctl_state/finished
if [ "$(tail -n 1 $gpuctl_state/steps)" = "done" ]; then
  exit 0
fi
gpuctl_now=

# Whether this step is still to be done; the one before it is finished now.
gpuctl_begin() {
  if [ -n "$gpuctl_now" ]; then
    echo "$gpuctl_now" >> $gpuctl_state/finished
  fi
  gpuctl_now=
  if grep -qxF -e "$1" $gpuctl_state/finished; then
    return 1
  fi
  gpuctl_now=$1
  echo "==> $1"
  echo "$1" >> $gpuctl_state/steps
}

gpuctl_end() {
  gpuctl_code=$?
  if [ $gpuctl_code -ne 0 ]; then
    echo "gpuctl: '$gpuctl_now' failed with exit code $gpuctl_code"
  fi
  exit $gpuctl_code
}
trap gpuctl_end EXIT

gpuctl_install() {
  if command -v apt-get > /dev/null; then
    apt-get update -q
    apt-get install -y -q --no-install-recommends "$@"
  else
    dnf install -y -q "$@"
  fi
}

# The commit $2 of the repository $1, and nothing else, is at $3.
gpuctl_checkout() {
  rm -rf "$3"
  git init -q "$3"
  git -C "$3" fetch -q --depth 1 "$1" "$2"
  if [ "$(git -C "$3" rev-parse FETCH_HEAD)" != "$2" ]; then
    echo "$1 gave another commit than $2: not built"
    rm -rf "$3"
    exit 1
  fi
  git -C "$3" checkout -q FETCH_HEAD
}
