"""Versions of images: what a plan says of them, and what it warns of before anything is paid."""

from typing import Any

import pytest

from config.catalogue.image_software import IMAGES, PLUGINS, TESTED, kernel_of, release_of, unseen
from config.cluster.resolved import Resolved
from config.errors import InputError
from config.target import Target
from lab import fault_kinds, fault_table
from provision.preflight.image_software import software_rows
from provision.preflight.preflight import resolve
from provision.state.store import ClusterStore
from tests.provision.test_cloud_init import cluster

pytestmark = pytest.mark.slow

LUSTRE = {"storage": {"shared": {"type": "fsx-lustre"}}}


def planned(target: Target, **changes: Any) -> Resolved:
    return resolve(cluster(**changes), ClusterStore(target))


def test_a_plan_has_the_versions_of_the_image(target: Target) -> None:
    assert software_rows(planned(target)) == (
        ("kernel", "7.0.0-1014-aws"),
        ("driver", "595.91.07"),
        ("CUDA", "13.2"),
        ("EFA's installer", "1.50.0"),
        ("NCCL's plugin", "1.21.1, tested with NCCL 2.31.2-1"),
        ("NCCL", "the image's own; AWS's notes do not name it"),
        ("Open MPI", "4 and 5 of EFA's installer; `mpirun` is 4"),
        (
            "source",
            "AWS's release notes of 20261009 for ARM64; gpuctl assumes the same for x86_64",
        ),
        (
            "PyTorch",
            "none: name a container `image` in the run file, or install it by `setup.commands`",
        ),
    )
    older = dict(software_rows(planned(target, image="dlami-ubuntu-22.04")))
    assert older["source"] == (
        "AWS's release notes of 20260915 for ARM64; gpuctl assumes the same for x86_64; the image"
        " is of 20261009"
    )


@pytest.mark.parametrize("command", ["pip3 install torch", "/opt/install.sh"])
def test_a_plan_says_nothing_of_pytorch_that_the_set_up_may_install(
    target: Target, command: str
) -> None:
    rows = software_rows(planned(target, setup={"commands": (command,)}))
    assert "PyTorch" not in dict(rows)


def test_a_plan_has_the_versions_that_gpuctl_installs(target: Target) -> None:
    rows = dict(software_rows(planned(target, image="stock-ubuntu-24.04")))
    assert rows["driver"] == "branch 580"
    assert (rows["NCCL"], rows["Open MPI"]) == ("2.30.4-1", "4")
    assert rows["source"] == "gpuctl's set-up installs these"
    assert software_rows(planned(target, instance_type="c6i.large")) == ()
    assert software_rows(planned(target, image="stock-debian-12")) == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"instance_type": "c6i.large", "image": "stock-ubuntu-24.04"}, []),
        ({"image": "stock-ubuntu-24.04"}, []),
        (
            {"image": "stock-ubuntu-24.04", "software": {"efa": "1.51.0"}},
            [
                "NCCL 2.30.4-1 and EFA's installer 1.51.0 have not been seen together: the tests of"
                " plugin 1.22.0 (EFA's installer 1.51.0) are not known"
            ],
        ),
        (
            {"image": "stock-ubuntu-24.04", "software": {"efa": "1.50.0", "nccl": "2.28.9-1"}},
            [
                "NCCL 2.28.9-1 and EFA's installer 1.50.0 have not been seen together: AWS tested"
                " plugin 1.21.1 (EFA's installer 1.50.0) with NCCL 2.31.2-1"
            ],
        ),
        (
            {"image": "stock-ubuntu-24.04", "software": {"efa": "1.99.0"}},
            [
                "NCCL 2.30.4-1 and EFA's installer 1.99.0 have not been seen together: gpuctl does"
                " not know NCCL's plugin in EFA's installer 1.99.0"
            ],
        ),
        (
            {"software": {"driver": "580"}},
            [
                "software.driver is 580, and image dlami-ubuntu-24.04 has 595 by AWS's notes of"
                " 20261009: `up` fails if it has another than the file says"
            ],
        ),
        (
            {"software": {"nccl": "2.30.4-1"}},
            [
                "NCCL 2.30.4-1 and EFA's installer 1.50.0 have not been seen together: AWS tested"
                " plugin 1.21.1 (EFA's installer 1.50.0) with NCCL 2.31.2-1"
            ],
        ),
    ],
)
def test_versions_that_nobody_has_seen_together_are_a_warning(
    changes: dict[str, Any], expected: list[str], target: Target
) -> None:
    assert list(planned(target, **changes).warnings) == expected


def test_the_tables_are_of_one_piece() -> None:
    assert {known.efa for known in IMAGES.values()} <= PLUGINS.keys()
    assert TESTED.keys() <= set(PLUGINS.values())
    assert unseen("1.50.0", "2.31.2-1") == ""
    name = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) "
    assert (release_of(f"{name}20261120"), release_of("mine"), release_of("")) == (
        "20261120", "", "",
    )  # fmt: skip
    assert kernel_of("dlami-ubuntu-24.04", f"{name}20261009") == "7.0.0-1014-aws"
    assert kernel_of("dlami-ubuntu-24.04", f"{name}20261120") == ""
    assert kernel_of("ami-0123456789abcdef0", f"{name}20261009") == ""


def lustre_fault(target: Target, *kernels: str) -> None:
    given = {"lustre-client": fault_kinds.parse("lustre-client", kernels)}
    fault_table.write(target.state.parents[1] / "faults.json", given)


def test_a_kernel_without_a_lustre_client_ends_the_plan(empty_region: Target) -> None:
    assert planned(empty_region, **LUSTRE).warnings == ()
    lustre_fault(
        empty_region, "6.17.0-1017-aws", "6.8.0-1024-aws", "6.8.0-1063-aws", "5.15.0-1-aws"
    )
    with pytest.raises(InputError) as caught:
        planned(empty_region, **LUSTRE)
    assert str(caught.value) == (
        "AWS has no Lustre client for the kernel 7.0.0-1014-aws of image dlami-ubuntu-24.04; its"
        " newest are for 6.8.0-1024-aws, 6.8.0-1063-aws, 6.17.0-1017-aws; name an image with"
        " such a kernel (dlami-…, ami-…), or take storage.shared.type efs"
    )
    assert planned(empty_region, storage={"shared": {"type": "efs"}}).warnings == ()
    assert planned(empty_region, image="dlami-al2023", **LUSTRE).warnings == ()


def test_a_kernel_that_is_not_known_is_a_warning(empty_region: Target) -> None:
    lustre_fault(empty_region, "6.8.0-1063-aws")
    (warning,) = planned(empty_region, image="dlami-ubuntu-22.04", **LUSTRE).warnings
    assert warning == (
        "whether AWS has a Lustre client for the kernel of image dlami-ubuntu-22.04 is not known:"
        " its newest are for 6.8.0-1063-aws. Each node checks its kernel first, and `up` fails"
        " without a client"
    )
