"""Files with which a machine of the lab runs containers: podman's settings and a unit.

systemd-nspawn runs the machine, so it lacks some features that a container runtime expects.
"""

_PUBLIC = ("ai", "cn", "com", "dev", "io", "net", "org")

FILES = {
    # The host may forbid higher limits, and nspawn forbids kernel keyrings. Nothing listens at the
    # proxy's address: podman reaches only addresses of the lab, so that no packet leaves it. In a
    # user namespace podman assumes that a user runs it, and would leave its monitor in the unit of
    # its caller unless it is set to use systemd.
    "etc/containers/containers.conf": """\
[containers]
keyring = false
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[network]
network_backend = "netavark"
[engine]
cgroup_manager = "systemd"
env = [
  "HTTP_PROXY=http://127.0.0.1:9",
  "HTTPS_PROXY=http://127.0.0.1:9",
  "NO_PROXY=localhost,127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,198.18.0.0/15",
]
""",
    # podman then fails at once, with a line that names the blocked registry.
    "etc/containers/registries.conf.d/90-lab.conf": "".join(
        f'[[registry]]\nprefix = "*.{top}"\nblocked = true\n' for top in _PUBLIC
    ),
    # The file of `nvidia-ctk cdi generate`; here the GPUs are those of nvidia-smi's stand-in.
    "etc/cdi/nvidia.yaml": """\
cdiVersion: 0.3.0
kind: nvidia.com/gpu
devices:
  - name: all
    containerEdits:
      env: [NVIDIA_VISIBLE_DEVICES=void]
      mounts:
        - {hostPath: /usr/bin/nvidia-smi, containerPath: /usr/bin/nvidia-smi, options: [ro, bind]}
        - {hostPath: /etc/gpuctl-lab, containerPath: /etc/gpuctl-lab, options: [ro, bind]}
""",
    # nspawn mounts the hierarchies of cgroup v1 read-only; runc creates a group in each.
    "etc/systemd/system/gpuctl-lab-cgroups.service": """\
[Unit]
Description=Control groups for containers
[Service]
Type=oneshot
ExecStart=/bin/sh -c "findmnt -nlt cgroup -o TARGET | xargs -rn 1 mount -o remount,bind,rw"
[Install]
WantedBy=multi-user.target
""",
}

UNIT = "gpuctl-lab-cgroups.service"

MASKED = (
    "podman-auto-update.service",
    "podman-auto-update.timer",
    "podman-restart.service",
    "podman.service",
    "podman.socket",
)
"""Units of podman that a machine with a life of minutes does not need."""
