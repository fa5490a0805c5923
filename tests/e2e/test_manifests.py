"""Manifests as people have them, on two nodes of the lab: their mpirun reaches both by itself."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file

pytestmark = pytest.mark.lab

# Neither a hostfile, nor an agent, nor root is mentioned. `sh` expands nothing on the way.
MPIJOB = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: where
spec:
  slotsPerWorker: 2
  runPolicy: {cleanPodPolicy: Running}
  sshAuthMountPath: /root/.ssh
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
            - name: launcher
              image: mpioperator/mpi-pi:openmpi
              command: [mpirun]
              args: [-n, "4", sh, -c, 'echo "rank $OMPI_COMM_WORLD_RANK on $(hostname)"']
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: worker
              image: mpioperator/mpi-pi:openmpi
              command: [/usr/sbin/sshd, -De]
"""

# What it starts sshd for is done without.
VOLCANO = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: where}
spec:
  minAvailable: 3
  schedulerName: volcano
  plugins: {ssh: [], svc: []}
  tasks:
    - replicas: 1
      name: mpimaster
      policies: [{event: TaskCompleted, action: CompleteJob}]
      template:
        spec:
          containers:
            - name: master
              image: volcanosh/example-mpi:0.0.3
              command:
                - /bin/sh
                - -c
                - |
                  MPI_HOST=`cat /etc/volcano/mpiworker.host | tr "\\n" ","`
                  mkdir -p /var/run/sshd; /usr/sbin/sshd
                  mpiexec --allow-run-as-root --host ${MPI_HOST} -np 2 \\
                    sh -c 'echo "rank $OMPI_COMM_WORLD_RANK on $(hostname)"'
          restartPolicy: OnFailure
    - replicas: 2
      name: mpiworker
      template:
        spec:
          containers:
            - name: worker
              image: volcanosh/example-mpi:0.0.3
              command: [/bin/sh, -c, mkdir -p /var/run/sshd; /usr/sbin/sshd -D]
          restartPolicy: OnFailure
"""


@pytest.fixture(scope="module")
def cluster(gpuctl: Gpuctl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = cluster_file(tmp_path_factory.mktemp("mpijob"), "mpijob")
    gpuctl("--lab", "up", str(file), "--yes")
    yield "mpijob"
    gpuctl("--lab", "down", "mpijob", "--yes")


@pytest.mark.parametrize(("manifest", "each"), [(MPIJOB, 2), (VOLCANO, 1)])
def test_a_manifest_runs_as_it_is(
    gpuctl: Gpuctl, cluster: str, tmp_path: Path, manifest: str, each: int
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(manifest)
    output = gpuctl("--lab", "run", str(file), "--cluster", cluster, "--no-image")
    nodes = gpuctl.json("--lab", "status", cluster)[0]["nodes"]
    addresses = [node["private_ip"] for node in nodes if node["name"] != "bastion"]
    hosts = [f"ip-{address.replace('.', '-')}" for address in addresses]
    said = sorted(re.findall(r"^\[0\] (rank \d on \S+)$", output, re.MULTILINE))
    assert said == [f"rank {rank} on {hosts[rank // each]}" for rank in range(2 * each)]
