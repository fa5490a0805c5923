"""What a machine of the lab needs to run containers: podman's settings and a unit.

A machine is systemd-nspawn's: some of what a runtime takes for granted is not there.
"""

_PUBLIC = ("ai", "cn", "com", "dev", "io", "net", "org")

FILES = {
    # The host may forbid to raise limits, and nspawn forbids kernel keyrings. The proxy is nobody:
    # only addresses of the lab are asked for images, so that no packet leaves it.
    "etc/containers/containers.conf": """\
[containers]
keyring = false
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[network]
network_backend = "netavark"
[engine]
env = [
  "HTTP_PROXY=http://127.0.0.1:9",
  "HTTPS_PROXY=http://127.0.0.1:9",
  "NO_PROXY=localhost,127.0.0.0/8,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,198.18.0.0/15",
]
""",
    # podman says so at once, in a line that names the registry's kind.
    "etc/containers/registries.conf.d/90-lab.conf": "".join(
        f'[[registry]]\nprefix = "*.{top}"\nblocked = true\n' for top in _PUBLIC
    ),
    # As `nvidia-ctk cdi generate` leaves it: here the GPUs are what nvidia-smi's stand-in shows.
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
    # nspawn mounts the hierarchies of cgroup v1 read-only; runc makes a group in each.
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
"""Units of podman that a machine which lives for minutes has no use for."""
