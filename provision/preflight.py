"""All questions to AWS before anything is made, asked at once, and all complaints told at once."""

import ipaddress
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from config.catalogue import BASTION_TYPE, NAT_PRICE_USD_H, nearest, price_usd_h
from config.cluster import Cluster
from config.errors import CloudError, GpuctlError, InputError
from config.resolved import Image, InstanceType, Interface, NetworkCard, Resolved
from config.target import Target
from infra.addresses import carve
from infra.layout import interfaces
from infra.user_data import encode
from nodes.keys import ensure_key
from provision.aws import UNIVERSAL, aws_errors, client
from provision.cloud_init import bastion_user_data, node_user_data
from provision.images import BASTION_IMAGE, image, image_id
from provision.record import folder, read

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeInfoTypeDef
    from mypy_boto3_ssm import SSMClient

CLUSTER_TAG = "gpuctl:cluster"

T = TypeVar("T")


class Complaints:
    """What is wrong, in the order in which a reader of the file expects it."""

    def __init__(self) -> None:
        self.found: list[GpuctlError] = []

    def catch(self, ask: Callable[[], T]) -> T | None:
        """The answer, or None when `ask` complained; what every request meets is kept once."""
        try:
            return ask()
        except GpuctlError as error:
            code = error.code if isinstance(error, CloudError) else ""
            codes = {known.code for known in self.found if isinstance(known, CloudError)}
            if code not in UNIVERSAL & codes:
                self.found.append(error)
            return None

    def check(self) -> None:
        """Raises what was found: as it is, or several as one with a line each."""
        if not self.found:
            return
        if len(self.found) == 1:
            raise self.found[0]
        kind = InputError if all(isinstance(e, InputError) for e in self.found) else CloudError
        raise kind("\n".join(str(error) for error in self.found), "")


@dataclass(frozen=True)
class _Questions:
    """Everything that is asked, on its way."""

    account: Future[str]
    instance_type: Future[InstanceType]
    offers: Future[dict[str, frozenset[str]]]
    image: Future[tuple[Image, int]]
    bastion_image: Future[tuple[Image, int]]
    ssh_from: Future[str]


def resolve(cluster: Cluster, target: Target) -> Resolved:
    """The cluster with nothing left open; its client key exists afterwards, and nothing else new.

    A cluster that exists keeps its zone, its AMIs and its `ssh_from`, unless the file changed
    there. Raises InputError or CloudError with one line per problem.
    """
    before = _before(cluster, target)
    complaints = Complaints()
    with ThreadPoolExecutor(8, thread_name_prefix="preflight") as pool:
        asked = _ask(cluster, target, before, pool)
        account = complaints.catch(asked.account.result)
        instance = complaints.catch(asked.instance_type.result)
        offers = complaints.catch(asked.offers.result)
        zone = None
        if instance and offers is not None:
            zone = complaints.catch(lambda: _zone(cluster, target.region, offers, before))
        found = complaints.catch(asked.image.result)
        if found and instance:
            complaints.catch(lambda: _check_image(cluster, instance, *found))
        entry = complaints.catch(asked.bastion_image.result)
        complaints.catch(lambda: _check_addresses(cluster))
        ssh_from = complaints.catch(asked.ssh_from.result)
        layout: tuple[Interface, ...] | None = None
        if instance:
            layout = complaints.catch(lambda: interfaces(instance, cluster.network.efa))
        if found:
            complaints.catch(lambda: encode(node_user_data(cluster, found[0], "k" * 100)) and None)
    complaints.check()
    assert account and instance and zone and found and entry and ssh_from and layout
    key = ensure_key(folder(cluster.name, target) / "id_ed25519", f"gpuctl {cluster.name}")
    return Resolved(
        cluster=cluster,
        account=account,
        region=target.region,
        zone=zone,
        instance_type=instance,
        interfaces=layout,
        image=found[0],
        bastion_type=BASTION_TYPE,
        bastion_image=entry[0],
        bastion_price_usd_h=price_usd_h(BASTION_TYPE),
        nat_price_usd_h=NAT_PRICE_USD_H,
        ssh_from=ssh_from,
        public_key=key,
        user_data=node_user_data(cluster, found[0], key),
        bastion_user_data=bastion_user_data(cluster, key),
        tags={**cluster.tags, CLUSTER_TAG: cluster.name},
    )


def _before(cluster: Cluster, target: Target) -> Resolved | None:
    """What the cluster was last resolved to, or None for a new one."""
    if cluster.region and cluster.region != target.region:
        raise InputError(
            f"the file says region {cluster.region}, the command {target.region}",
            "leave one of them out",
        )
    record = read(cluster.name, target)
    if record is not None and record.region != target.region:
        raise InputError(
            f"cluster '{cluster.name}' is in {record.region}, not in {target.region}",
            f"choose another name, or remove it first: `gpuctl down {cluster.name}`",
        )
    return record.resolved if record else None


def _ask(
    cluster: Cluster, target: Target, before: Resolved | None, pool: ThreadPoolExecutor
) -> _Questions:
    ec2, ssm = client(target, "ec2"), client(target, "ssm")
    pinned = before.image.id if before and before.cluster.image == cluster.image else None
    entry = before.bastion_image.id if before else None
    return _Questions(
        account=pool.submit(_account, target),
        instance_type=pool.submit(_instance_type, ec2, cluster.instance_type),
        offers=pool.submit(_offers, ec2, (cluster.instance_type, BASTION_TYPE)),
        image=pool.submit(_image, ec2, ssm, cluster.image, pinned),
        bastion_image=pool.submit(_image, ec2, ssm, BASTION_IMAGE, entry),
        ssh_from=pool.submit(_ssh_from, cluster, target, before),
    )


def _account(target: Target) -> str:
    with aws_errors():
        return client(target, "sts").get_caller_identity()["Account"]


def _image(ec2: "EC2Client", ssm: "SSMClient", name: str, pinned: str | None) -> tuple[Image, int]:
    return image(ec2, pinned or image_id(ssm, name))


def _instance_type(ec2: "EC2Client", name: str) -> InstanceType:
    """What EC2 says of the type, by a filter: an unknown name is then an empty answer."""
    with aws_errors():
        told = ec2.describe_instance_types(Filters=[{"Name": "instance-type", "Values": [name]}])[
            "InstanceTypes"
        ]
    if not told:
        names = nearest(name)
        raise InputError(
            f"instance type {name} does not exist in {ec2.meta.region_name}",
            f"did you mean {' or '.join(names)}?" if names else "choose another type or region",
        )
    return read_instance_type(told[0])


def read_instance_type(told: "InstanceTypeInfoTypeDef") -> InstanceType:
    """One entry of DescribeInstanceTypes in our words."""
    network = told.get("NetworkInfo", {})
    gpus = told.get("GpuInfo", {}).get("Gpus", [])
    name = str(told.get("InstanceType", ""))
    return InstanceType(
        name=name,
        vcpus=told.get("VCpuInfo", {}).get("DefaultVCpus", 0),
        memory_mib=told.get("MemoryInfo", {}).get("SizeInMiB", 0),
        gpus=sum(gpu.get("Count", 0) for gpu in gpus),
        gpu_model=" ".join(
            filter(None, (gpus[0].get("Manufacturer"), gpus[0].get("Name"))) if gpus else ()
        ),
        architecture=_architecture(told),
        max_efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
        if network.get("EfaSupported")
        else 0,
        cards=tuple(
            NetworkCard(
                index=card.get("NetworkCardIndex", 0),
                max_interfaces=card.get("MaximumNetworkInterfaces", 1),
                interface_types=tuple(str(t) for t in card.get("InterfaceTypes", ())),
            )
            for card in network.get("NetworkCards", ())
        ),
        price_usd_h=price_usd_h(name),
    )


def _architecture(told: "InstanceTypeInfoTypeDef") -> str:
    """The 64-bit one; old types list i386 beside it."""
    supported = told.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    return next((str(a) for a in supported if a in ("x86_64", "arm64")), "x86_64")


def _offers(ec2: "EC2Client", types: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """The zones of the region that offer each of the types."""
    zones: dict[str, set[str]] = {name: set() for name in types}
    with aws_errors():
        pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": list(types)}],
        )
        for page in pages:
            for offer in page["InstanceTypeOfferings"]:
                zones[str(offer["InstanceType"])].add(offer["Location"])
    return {name: frozenset(found) for name, found in zones.items()}


def _zone(
    cluster: Cluster, region: str, offers: dict[str, frozenset[str]], before: Resolved | None
) -> str:
    """The zone for everything: the cluster's own if it has one, else the first that fits."""
    name, wanted = cluster.instance_type, cluster.capacity.zones
    fitting = sorted(offers[name] & offers[BASTION_TYPE])
    if not fitting:
        raise InputError(f"no zone of {region} offers {name}", "choose another region or type")
    if before and before.zone in fitting and (not wanted or before.zone in wanted):
        return before.zone
    for zone in wanted or fitting:
        if zone in fitting:
            return zone
    raise InputError(
        f"capacity.zones: {', '.join(wanted)}: none offers {name}",
        f"these do: {', '.join(fitting)}",
    )


def _check_image(cluster: Cluster, instance: InstanceType, found: Image, size_gib: int) -> None:
    if found.architecture != instance.architecture:
        raise InputError(
            f"image {cluster.image} is for {found.architecture},"
            f" {instance.name} is {instance.architecture}",
            "name an image of that architecture (ami-…)",
        )
    if size_gib > cluster.storage.root_gib:
        raise InputError(
            f"storage.root_gib: {cluster.storage.root_gib} is less than the"
            f" {size_gib} GiB of image {cluster.image}",
            f"set it to {size_gib} or more",
        )


def _check_addresses(cluster: Cluster) -> None:
    room = carve(cluster.network.cidr).node_addresses
    if room < cluster.nodes:
        raise InputError(
            f"network.cidr: {cluster.network.cidr} has addresses for {room} nodes,"
            f" {cluster.nodes} are asked for",
            "use a larger range, /16 for the most nodes",
        )


def _ssh_from(cluster: Cluster, target: Target, before: Resolved | None) -> str:
    """Who may ssh to the bastion, as a range."""
    asked = cluster.network.ssh_from
    if asked is not None:
        return asked
    if before is not None and before.cluster.network.ssh_from is None:
        return before.ssh_from
    if target.caller_address is not None:
        return f"{target.caller_address}/32"
    if target.endpoint is not None:
        raise InputError(
            "network.ssh_from: your address is not known to this endpoint",
            "set it to the IPv4 range that may ssh to the bastion",
        )
    return f"{_public_address()}/32"


def _public_address() -> str:
    """The address that AWS sees this client come from, asked of AWS's own service."""
    try:
        with urllib.request.urlopen("https://checkip.amazonaws.com", timeout=10) as answer:
            return str(ipaddress.IPv4Address(answer.read(64).decode().strip()))
    except (OSError, ValueError) as error:
        raise InputError(
            f"network.ssh_from: your public address cannot be found out ({error})",
            "set it to the IPv4 range that may ssh to the bastion",
        ) from error
