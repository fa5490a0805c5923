"""What cloud-init gets, for every image on every GPU type and in every mode: EC2, cloud-init and
shellcheck have nothing against it.

Types of like hardware have the same scripts: each text is looked at once.
"""

import base64
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from config.cluster.cluster_file import Cluster, Software
from config.loading.load import load_cluster
from config.progress import silent
from infra.program.interface_layout import interfaces
from infra.program.user_data import LIMIT, LONGEST_SOURCE, encode, insert_mount_source
from lab.images.image import ensure_image
from provision.aws.instance_types import read_instance_type
from provision.setup.cloud_init import bastion_user_data, node_user_data
from provision.setup.software.gpu_hardware import Hardware, hardware
from provision.setup.software.script import check_script, setup_script
from tests.infra.region import described_types
from tests.plans.account import P4D
from tests.plans.cases import MODES, TYPES, Case
from tests.provision.test_cloud_init import IMAGES, KEY, parts

pytestmark = pytest.mark.slow

WITHOUT_GPU = "c6i.large"


@cache
def clusters() -> tuple[Cluster, ...]:
    """Every image on every type, each image with packages, then the modes."""
    names = [case.name for case in TYPES] + [WITHOUT_GPU]
    asked = [
        Cluster(name="demo", nodes=2, instance_type=name, image=image)
        for name in names
        for image in IMAGES
    ]
    packages = Software(packages=("htop",))
    asked += [
        Cluster(name="demo", nodes=2, instance_type=P4D, image=image, software=packages)
        for image in IMAGES
    ]
    return (*asked, *(load_cluster(_file(case)) for case in MODES))


def _machine(cluster: Cluster) -> Hardware:
    kind = read_instance_type(described_types()[cluster.instance_type])
    return hardware(kind, interfaces(kind, cluster.network.efa))


def _file(case: Case) -> Path:
    return Path(__file__).parent / "modes" / f"{case.name}.yaml"


@cache
def documents() -> dict[str, str]:
    """Each document, by the first type and image that has it."""
    found: dict[str, str] = {}
    for cluster in clusters():
        machine = _machine(cluster)
        title = f"{cluster.name} {cluster.instance_type} {cluster.image}"
        found.setdefault(node_user_data(cluster, machine, KEY), title)
        found.setdefault(bastion_user_data(cluster, KEY), f"{title}, its bastion")
    return {title: text for text, title in found.items()}


def scripts() -> Iterator[str]:
    """Each script that runs on a node: its set-up, and the checks that it has as a file."""
    seen = set()
    for cluster in clusters():
        machine = _machine(cluster)
        for script in (setup_script(cluster, machine), check_script(cluster, machine)):
            if script not in seen:
                seen.add(script)
                yield script


def test_it_fits_into_what_ec2_takes() -> None:
    sizes = {
        title: len(base64.b64decode(encode(insert_mount_source(text, LONGEST_SOURCE))))
        for title, text in documents().items()
    }
    assert max(sizes.values()) <= LIMIT, sizes


def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    # To shellcheck one number that is assigned is like any other.
    alike = {re.sub(r"^(\w+)=\d+$", r"\1=1", each, flags=re.MULTILINE): each for each in scripts()}
    files = []
    for number, script in enumerate(alike.values()):
        files.append(tmp_path / f"{number}.sh")
        files[-1].write_text(script)
    done = subprocess.run(["shellcheck", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.lab
def test_cloud_init_finds_no_fault(tmp_path: Path) -> None:
    """Asked of the cloud-init of the lab's image, which is Debian 13's."""
    image = ensure_image("stock", silent)
    configs = dict.fromkeys(parts(text)[0][1] for text in documents().values())
    for number, config in enumerate(configs):
        (tmp_path / f"{number}.yaml").write_text(config)
    each = "for f in /run/configs/*; do cloud-init schema --config-file $f || exit 1; done"
    done = subprocess.run(
        [
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--read-only", "--pipe"),
            *("--resolv-conf=off", "-D", str(image), f"--bind-ro={tmp_path}:/run/configs"),
            *("sh", "-c", each),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(said) == len(configs)
    assert all(line.startswith("Valid schema ") for line in said), said
