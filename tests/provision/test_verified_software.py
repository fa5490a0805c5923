"""What a node downloads is checked before it is used: signature, fingerprint, sha256, commit."""

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.catalogue.releases import commit, newest
from config.errors import InputError
from provision.setup.software.script import (
    CUDA_KEYRING,
    EFA_KEY,
    FSX_KEY,
    NCCL,
    NCCL_TESTS,
    STEPS,
    check_script,
    setup_script,
)
from tests.provision.test_cloud_init import P4D, Sandbox, cluster, titles

COMMIT = re.compile(r"[0-9a-f]{40}")


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


class Keys:
    """A keyring of the test's own."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp())  # short: its agent has a socket there

    def gpg(self, *words: str) -> str:
        command = ["gpg", "--homedir", str(self.home), "--batch", "--passphrase", "", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def make(self, name: str) -> str:
        """Make a signing key with a subkey, as repositories have them; return its fingerprint."""
        self.gpg("--quick-generate-key", name, "ed25519", "sign")
        listed = self.gpg("--with-colons", "--fingerprint", name)
        found = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))
        self.gpg("--quick-add-key", found, "ed25519", "sign")
        return found


@pytest.fixture
def keys() -> Iterator[Keys]:
    made = Keys()
    yield made
    subprocess.run(["gpgconf", "--homedir", str(made.home), "--kill", "all"], check=True)
    shutil.rmtree(made.home, onerror=_ignore_missing)


def _ignore_missing(_: object, path: str, error: tuple[type, BaseException, object]) -> None:
    """Pass over a socket that gpg-agent, which ends meanwhile, has removed itself."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


def efa_step(
    sandbox: Sandbox, keys: Keys, signed_by_us: bool
) -> "subprocess.CompletedProcess[str]":
    """The step with a tarball that a key of the test's own has signed."""
    source = sandbox.root / "source"
    (source / "aws-efa-installer").mkdir(parents=True)
    installer = source / "aws-efa-installer/efa_installer.sh"
    installer.write_text('#!/bin/bash\necho "installing $*"\n')
    installer.chmod(0o755)

    tarball = source / "aws-efa-installer-1.51.0.tar.gz"
    subprocess.run(["tar", "-czf", tarball, "-C", source, "aws-efa-installer"], check=True)
    ours = keys.make("test")
    keys.gpg("--detach-sign", str(tarball))
    keys.gpg("--armor", "--output", str(source / "aws-efa-installer.key"), "--export")
    sandbox.program("curl", f'cp {source}/"${{!#}}" "$5" 2> /dev/null || cp {source}/"$5" "$5"')
    (sandbox.bin / "cp").symlink_to(str(shutil.which("cp")))
    sandbox.program("sysctl", "true")
    values = (
        f"gpuctl_efa=1.51.0\ngpuctl_openmpi=5\ngpuctl_efa_key={ours if signed_by_us else EFA_KEY}\n"
    )
    (sandbox.root / "etc/sysctl.d").mkdir()
    return sandbox.run(f"set -e\n{values}{(STEPS / 'efa.sh').read_text()}")


def test_the_efa_installer_runs_when_its_signature_is_good(sandbox: Sandbox, keys: Keys) -> None:
    done = efa_step(sandbox, keys, signed_by_us=True)
    assert "installing -y --mpi=openmpi5\n" in done.stdout, done.stderr
    assert done.returncode == 0


def test_an_efa_installer_that_another_key_signed_does_not_run(
    sandbox: Sandbox, keys: Keys
) -> None:
    done = efa_step(sandbox, keys, signed_by_us=False)
    assert done.returncode == 1
    assert done.stdout == (
        f"aws-efa-installer-1.51.0.tar.gz is not signed by AWS's key {EFA_KEY}: not installed\n"
    )


FSX = "https://fsx-lustre-client-repo-public-keys.s3.amazonaws.com/fsx-ubuntu-public-key.asc"


def fsx_step(
    sandbox: Sandbox, key: str, kernels: tuple[str, ...] = ("6.8.0-aws",)
) -> "subprocess.CompletedProcess[str]":
    """The step on an Ubuntu without the client; `served` is what AWS's address gives.

    AWS's repository has clients for `kernels`, and the package that depends on the newest.
    """
    names = [f"lustre-client-modules-{kernel}" for kernel in (*kernels, "aws")]
    rows = "".join(f"{name}) echo ' {name} | 2.15.6 | https://fsx/ ';;\n" for name in names)
    known = f"case $2 in\n{rows}esac"
    sandbox.program(
        "apt-cache", f"if [ $1 = pkgnames ]; then echo '{chr(10).join(names)}'; else {known}; fi"
    )
    sandbox.program("curl", f'[ "${{!#}}" = {FSX} ] && cat {sandbox.root}/served')
    sandbox.program("uname", "echo 6.8.0-aws")
    for name in ("apt-get", "gpgconf"):
        sandbox.program(name, f'echo "{name} $*" >> {sandbox.root}/calls')
    for folder in ("etc/apt/sources.list.d", "usr/share/keyrings"):
        (sandbox.root / folder).mkdir(parents=True)
    (sandbox.root / "etc/os-release").write_text("VERSION_CODENAME=noble\n")
    step = (STEPS / "fsx-lustre.sh").read_text()
    step = step.replace("=/usr/share/keyrings", f"={sandbox.root}/usr/share/keyrings")
    begin = (STEPS / "begin.sh").read_text()
    return sandbox.run(f"{begin}\ngpuctl_fsx_key={key}\n{step}")


def test_the_lustre_repository_is_trusted_for_aws_key(sandbox: Sandbox, keys: Keys) -> None:
    ours = keys.make("fsx")
    (sandbox.root / "served").write_text(keys.gpg("--armor", "--export"))
    done = fsx_step(sandbox, ours)
    assert done.returncode == 0, done.stdout + done.stderr
    keyring = sandbox.root / "usr/share/keyrings/fsx-ubuntu-public-key.gpg"
    listed = (sandbox.root / "etc/apt/sources.list.d/fsxlustreclientrepo.list").read_text()
    assert listed == (
        f"deb [signed-by={keyring}] https://fsx-lustre-client-repo.s3.amazonaws.com/ubuntu noble"
        " main\n"
    )
    assert "lustre-client-modules-6.8.0-aws" in (sandbox.root / "calls").read_text()


def test_a_kernel_without_a_lustre_client_ends_the_step_with_those_that_have_one(
    sandbox: Sandbox, keys: Keys
) -> None:
    """https://github.com/aws/aws-parallelcluster/issues/5746 (2026-11-22): none for 5.19."""
    ours = keys.make("fsx")
    (sandbox.root / "served").write_text(keys.gpg("--armor", "--export"))
    kernels = ("6.5.0-1022-aws", "6.2.0-1018-aws", "6.2.0-1009-aws", "5.15.0-1050-aws")
    done = fsx_step(sandbox, ours, kernels)
    assert done.returncode == 1
    assert done.stdout.startswith(
        "AWS has no Lustre client for this image's kernel 6.8.0-aws; its newest are for"
        " 6.2.0-1009-aws 6.2.0-1018-aws 6.5.0-1022-aws: name an image (ami-...) with such a kernel,"
        " or take storage.shared.type efs\n"
    )
    assert (sandbox.root / "calls").read_text() == "apt-get update -q\n"  # nothing is installed


def test_the_lustre_client_comes_before_the_minutes_of_the_driver() -> None:
    steps = titles("stock-ubuntu-24.04", storage={"shared": {"type": "fsx-lustre"}})
    assert steps.index("'client of shared storage'") < steps.index("'NVIDIA driver'")


def test_another_key_of_the_lustre_repository_is_removed(sandbox: Sandbox, keys: Keys) -> None:
    keys.make("somebody else")
    (sandbox.root / "served").write_text(keys.gpg("--armor", "--export"))
    refused(sandbox, FSX_KEY)


def test_a_second_key_next_to_aws_key_is_refused_too(sandbox: Sandbox, keys: Keys) -> None:
    ours = keys.make("fsx")
    keys.make("somebody else")
    (sandbox.root / "served").write_text(keys.gpg("--armor", "--export"))
    refused(sandbox, ours)


def refused(sandbox: Sandbox, key: str) -> None:
    done = fsx_step(sandbox, key)
    assert done.returncode == 1
    assert f"{FSX} is not AWS's key {key}: removed, no Lustre client is installed\n" in done.stdout
    assert list((sandbox.root / "usr/share/keyrings").iterdir()) == []
    assert list((sandbox.root / "etc/apt/sources.list.d").iterdir()) == []
    assert not (sandbox.root / "calls").exists()


KEYRING = (
    "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/"
    "cuda-keyring_1.1-1_all.deb"
)


def nvidia_step(sandbox: Sandbox, sha256: str) -> "subprocess.CompletedProcess[str]":
    """The step where NVIDIA's address serves the text `keyring`; `calls` is what was installed."""
    sandbox.program("curl", f'[ "${{!#}}" = {KEYRING} ] && echo keyring > "$5"')
    sandbox.program("uname", "echo 6.8.0-aws")
    for name in ("apt-get", "dpkg"):
        sandbox.program(name, f'echo "{name} $*" >> {sandbox.root}/calls')
    sandbox.program("modprobe", "true")
    (sandbox.root / "etc/modprobe.d").mkdir()
    step = (STEPS / "nvidia.sh").read_text().replace("/tmp/", f"{sandbox.root}/tmp/")
    step = step.replace("/proc/modules", "/dev/null")
    values = f"gpuctl_cuda_keyring={sha256}\ngpuctl_driver=580\ngpuctl_cuda=13-0\n"
    return sandbox.run(f"{(STEPS / 'begin.sh').read_text()}\n{values}{step}")


def test_nvidias_repository_is_trusted_for_the_pinned_keyring(sandbox: Sandbox) -> None:
    done = nvidia_step(sandbox, hashlib.sha256(b"keyring\n").hexdigest())
    assert done.returncode == 0, done.stdout + done.stderr
    calls = (sandbox.root / "calls").read_text().splitlines()
    assert calls[2:] == [
        f"dpkg -i {sandbox.root}/tmp/cuda-keyring.deb",
        "apt-get update -q",
        "apt-get install -y -q nvidia-open-580 cuda-toolkit-13-0",
    ]


def test_another_keyring_is_removed_and_nothing_of_nvidia_installed(sandbox: Sandbox) -> None:
    done = nvidia_step(sandbox, CUDA_KEYRING)
    assert done.returncode == 1
    assert f"{KEYRING} has not the sha256 {CUDA_KEYRING}: removed, not installed\n" in done.stdout
    assert list((sandbox.root / "tmp").iterdir()) == []
    assert "dpkg" not in (sandbox.root / "calls").read_text()


class Repository:
    """A repository `nccl` with two commits, and its release's tag moved to the second."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.folder = sandbox.root / "github/nccl.git"
        self.folder.mkdir(parents=True)
        self.git("init", "-q", "-b", "master")
        self.released = self.write("as released")
        self.moved = self.write("something else")
        self.git("tag", "v2.30.4-1")
        sandbox.program("make", f"cat {sandbox.root}/opt/nccl/version")
        sandbox.program("ldconfig", "true")
        (sandbox.root / "etc/ld.so.conf.d").mkdir()

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = ["git", "-C", str(self.folder), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def write(self, text: str) -> str:
        (self.folder / "version").write_text(f"{text}\n")
        self.git("add", "version")
        self.git("commit", "-q", "-m", text)
        return self.git("rev-parse", "HEAD")

    def build(self, wanted: str, served: str = "") -> "subprocess.CompletedProcess[str]":
        """The step on a node that takes this repository for GitHub's, which may serve another."""
        here = f"url.file://{self.folder.parent}/.insteadOf=https://github.com/NVIDIA/"
        arguments = f'"${{@/{wanted}/{served}}}"' if served else '"$@"'
        self.sandbox.program(
            "git",
            f"case $3 in fetch) set -- {arguments};; esac\n"
            f'exec {shutil.which("git")} -c {here} "$@"',
        )
        step = (STEPS / "nccl.sh").read_text()
        values = f"gpuctl_nccl_commit={wanted}\ngpuctl_sm=80\n"
        return self.sandbox.run(f"{(STEPS / 'begin.sh').read_text()}\n{values}{step}")


def test_nccl_is_built_from_its_commit_wherever_the_tag_points(sandbox: Sandbox) -> None:
    repository = Repository(sandbox)
    done = repository.build(repository.released)
    assert (done.returncode, done.stdout) == (0, "as released\n"), done.stderr


def test_another_commit_than_the_wanted_is_removed_and_not_built(sandbox: Sandbox) -> None:
    repository = Repository(sandbox)
    done = repository.build(repository.released, served=repository.moved)
    assert done.returncode == 1
    assert done.stdout.startswith(
        f"https://github.com/NVIDIA/nccl.git gave another commit than {repository.released}: not"
        " built\n"
    )
    assert not (sandbox.root / "opt/nccl").exists()


def test_a_commit_that_github_does_not_have_ends_the_step(sandbox: Sandbox) -> None:
    done = Repository(sandbox).build("0" * 40)
    assert done.returncode != 0
    assert "as released" not in done.stdout


def test_the_releases_that_gpuctl_installs_have_commits() -> None:
    for found in (
        *(commit("nccl", pin) for pin in (NCCL, newest("nccl"))),
        *(commit("nccl_tests", pin) for pin in (NCCL_TESTS, newest("nccl_tests"))),
    ):
        assert COMMIT.fullmatch(found or "")
    assert commit("nccl", "2.30.4-1") == "1933fdd6360a8bfccaa0166bd71bce363d32e5b6"
    assert commit("nccl_tests", "2.18.3") == "f727aa2a540fef911de9d7bfd8852bc5d2c69815"
    assert commit("nccl", "2.99.0-1") is None


def test_a_release_newer_than_gpuctl_is_named_with_its_commit() -> None:
    pins = {"nccl": f"2.99.1-1@{'a' * 40}", "nccl_tests": f"2.99.2@{'b' * 40}"}
    asked = cluster(image="stock-ubuntu-24.04", software=pins)
    script = setup_script(asked, P4D)
    assert f"\ngpuctl_nccl_commit={'a' * 40}\n" in script
    assert f"\ngpuctl_nccl_tests_commit={'b' * 40}\n" in script
    assert "\ngpuctl_nccl=2.99.1-1\n" in check_script(asked, P4D)


def test_a_release_without_a_commit_builds_nothing() -> None:
    """A cluster file that asks for one is refused before; a record of old may have one."""
    asked = cluster(image="stock-ubuntu-24.04", software={"nccl": "2.99.1-1"})
    with pytest.raises(InputError, match=r"^software\.nccl 2\.99\.1-1: its commit is unknown"):
        setup_script(asked, P4D)
