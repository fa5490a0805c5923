"""The faults that people can set, with their arguments and the code that AWS has for each.

Nothing here imports moto, whose models take a second: `gpuctl lab fault` answers at once.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from config.cluster.cluster_file import ZONE
from config.errors import InputError
from config.files import os_errors_as
from config.folders import user_path
from lab.authorization.policy import read_policy
from lab.fault_table import (
    BOUNDARY,
    CLOUD_INIT,
    FABRIC_MANAGER,
    HARDWARE,
    POLICY,
    PROVIDER,
    ROOT_LOGIN,
    SLOW_BOOT,
    SLOW_NETWORK,
)
from lab.machines import hardware_faults

_NUMBER = r"[0-9]{1,6}"
_TYPE = r"[a-z0-9-]+\.[a-z0-9-]+"
_INSTANCE = "i-[0-9a-f]{17}"
_BROKEN = f"({_INSTANCE}|{hardware_faults.LAUNCHED}[a-z0-9-]+)"
_RATE = "[1-9][0-9]{0,3}(kbit|mbit|gbit)"
_LOCAL_ZONE = "[a-z]{2}(-[a-z]+)+-[0-9]+(-[a-z0-9]+)+"
_SOMEWHERE = rf" {_TYPE} [1-9][0-9]{{0,3}} {ZONE[1:-1]}"


@dataclass(frozen=True)
class FaultKind:
    """A kind of fault: the arguments that it takes, and the error code that AWS would send.

    `usage` shows the arguments to people; `form` is a regular expression for all arguments,
    joined with single spaces. `code` is empty for a fault that no error shows.
    """

    usage: str
    form: str
    code: str
    meaning: str


FAULTS: Mapping[str, FaultKind] = {
    "no-capacity": FaultKind(
        "ZONE…", rf"{ZONE[1:-1]}( {ZONE[1:-1]})*", "InsufficientInstanceCapacity",
        "these zones have no instance of any type but the bastion's",
    ),
    "capacity": FaultKind(
        "N", _NUMBER, "InsufficientInstanceCapacity",
        "every zone has N instances of a type, and no more",
    ),
    "vcpu-quota": FaultKind(
        "N", _NUMBER, "VcpuLimitExceeded",
        "the account may run N vCPUs of each group of families",
    ),
    "throttle": FaultKind(
        "K", "[1-9][0-9]{0,3}", "RequestLimitExceeded", "every K-th call to EC2 is throttled"
    ),
    "api-error": FaultKind(
        "K [CODE]", r"[1-9][0-9]{0,5}( [A-Za-z.]+)?", "InternalError",
        "the K-th call to EC2 from now on fails, once, with CODE",
    ),
    "not-offered": FaultKind(
        "TYPE ZONE…", rf"{_TYPE}( {ZONE[1:-1]})+", "Unsupported",
        "these zones do not offer the type",
    ),
    "local-zones": FaultKind(
        "ZONE…", rf"{_LOCAL_ZONE}( {_LOCAL_ZONE})*", "",
        "the account has opted in to these Local Zones or Wavelength Zones, which offer every type"
        " of their region",
    ),
    "no-free-address": FaultKind(
        "", "", "InsufficientFreeAddressesInSubnet", "no subnet has a free address"
    ),
    "elastic-ip-limit": FaultKind(
        "N", _NUMBER, "AddressLimitExceeded", "the account may have N Elastic IP addresses"
    ),
    "vpc-limit": FaultKind("N", _NUMBER, "VpcLimitExceeded", "the account may have N VPCs"),
    "image-architecture": FaultKind(
        "ARCHITECTURE", "x86_64|arm64", "InvalidParameterValue",
        "every image but the bastion's is for this architecture",
    ),
    "reservation": FaultKind(
        "KIND TYPE N ZONE", f"(wrong-zone|wrong-type|too-small|taken){_SOMEWHERE}",
        "ReservationCapacityExceeded",
        "you have a reservation for N of TYPE in ZONE, but KIND: wrong-zone, wrong-type, too-small,"
        " taken",
    ),
    "block": FaultKind(
        "KIND TYPE N ZONE", f"(not-started|last-half-hour){_SOMEWHERE}",
        "ReservationCapacityExceeded",
        "you have a capacity block for N of TYPE in ZONE, but KIND: not-started, last-half-hour",
    ),
    "claim-pending": FaultKind(
        "SECONDS", _NUMBER, "",
        "a new capacity reservation is pending for SECONDS, and active after that",
    ),
    "claim-failed": FaultKind(
        "ZONE…", rf"{ZONE[1:-1]}( {ZONE[1:-1]})*", "",
        "a new capacity reservation in these zones is pending for a second, and failed after that",
    ),
    "block-cleanup": FaultKind(
        "SECONDS", _NUMBER, "ReservationCapacityExceeded",
        "an instance that ended in a capacity block leaves its place SECONDS later, by default 2",
    ),
    "nat-pending": FaultKind(
        "SECONDS", _NUMBER, "", "a new NAT gateway is pending for SECONDS, and available after that"
    ),
    "fsx-creating": FaultKind(
        "SECONDS", _NUMBER, "",
        "a new FSx file system is CREATING for SECONDS, and AVAILABLE after that",
    ),
    "consistency": FaultKind(
        "SECONDS", _NUMBER, "",
        "EC2 knows a new instance, subnet, group … only SECONDS after its creation: until then it"
        " refuses the id, and no list has it",
    ),
    "expired-token": FaultKind(
        "SECONDS", _NUMBER, "ExpiredToken",
        "credentials that were issued before SECONDS from now have expired then",
    ),
    POLICY: FaultKind(
        "FILE", ".+", "UnauthorizedOperation",
        "the lab's credentials may do only what the IAM policy in FILE allows; `gpuctl iam-policy`"
        " prints one",
    ),
    BOUNDARY: FaultKind(
        "FILE", ".+", "UnauthorizedOperation",
        "the IAM policy in FILE is the permissions boundary of the lab's credentials: they may do"
        " only what it allows too",
    ),
    "spot-interruption": FaultKind(
        "INSTANCE… [SECONDS]", rf"{_INSTANCE}( {_INSTANCE})*( {_NUMBER})?",
        "Server.SpotInstanceTermination",
        "AWS takes these spot instances (i-…, or demo-node1) back in SECONDS, by default 120",
    ),
    PROVIDER: FaultKind(
        "violates plan", "violates plan", "",
        "Pulumi's provider computes other inputs each time, so that no update is as planned",
    ),
    "lustre-client": FaultKind(
        "KERNEL…", r"\d[\w.-]*( \d[\w.-]*)*", "",
        "AWS has Lustre clients for these kernels of Ubuntu alone, such as 6.8.0-1063-aws",
    ),
    "console-late": FaultKind(
        "SECONDS", _NUMBER, "",
        "the console of an instance shows nothing within SECONDS of its launch",
    ),
    "vpc-endpoint": FaultKind(
        "by guardduty", "by guardduty", "",
        "GuardDuty puts an endpoint and a security group into the VPC of the next instance",
    ),
    SLOW_NETWORK: FaultKind(
        "NODE… RATE", rf"{_INSTANCE}( {_INSTANCE})* {_RATE}", "",
        "these machines (demo-node1, or i-…) send and receive at most RATE, such as 10mbit",
    ),
    HARDWARE: FaultKind(
        "NODE… NAME=VALUE…", rf"{_BROKEN}( {_BROKEN})*( ({hardware_faults.FORM}))+", "",
        "the tools of these machines show broken hardware: " + ", ".join(hardware_faults.VALUES),
    ),
    CLOUD_INIT: FaultKind(
        "22.2.2", r"22\.2\.2", "",
        "machines launched from now on have a cloud-init as old as Amazon Linux 2023's, whose"
        " `status` knows no --format",
    ),
    ROOT_LOGIN: FaultKind(
        "off", "off", "", "sshd of machines launched from now on refuses root (PermitRootLogin no)"
    ),
    SLOW_BOOT: FaultKind(
        "SECONDS", _NUMBER, "",
        "machines launched from now on need SECONDS more until cloud-init begins, at each boot;"
        " EC2 calls them running meanwhile",
    ),
    FABRIC_MANAGER: FaultKind(
        "late SECONDS", f"late {_NUMBER}", "",
        "on machines launched from now on NVIDIA's fabric manager fails until SECONDS after the"
        " boot",
    ),
}  # fmt: skip
"""Every fault by its name."""

NOTICE_S = 120
"""Seconds from a spot instance's notice to its end ("Spot Instance interruption notices",
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html,
2026-11-20)."""


def parse(name: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fault's arguments, checked and completed; InputError names the usage."""
    if name not in FAULTS:
        raise InputError(
            f"the lab has no fault '{name}'",
            f"it knows {', '.join(FAULTS)}: `gpuctl lab fault list`",
        )
    kind = FAULTS[name]
    given = " ".join(arguments)
    if not re.fullmatch(kind.form, given):
        raise InputError(
            f"fault {name} cannot be given '{given}'",
            f"write `{f'gpuctl lab fault set {name} {kind.usage}'.rstrip()}`: {kind.meaning}",
        )
    if name in (POLICY, BOUNDARY):
        return (_policy_file(given),)
    return (*arguments, *_certain(name, arguments))


def _policy_file(given: str) -> str:
    """Return the absolute path of a file with a policy; InputError if it has none."""
    path = user_path(given).absolute()
    with os_errors_as(InputError, f"{path} cannot be read", "name a file"):
        read_policy(path.read_text())
    return str(path)


def _certain(name: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the id and time to store with a fault, so that all requests see the same values."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if name in ("reservation", "block"):
        return (f"cr-{secrets.token_hex(9)[:17]}", now)
    if name == "expired-token":
        return (now,)
    if name == "spot-interruption":
        return (now,) if arguments[-1].isdigit() else (str(NOTICE_S), now)
    return ()
