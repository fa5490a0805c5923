"""All questions to AWS before anything is made, asked at once, and all complaints told at once."""

import contextlib
import re
import secrets as random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from config.catalogue.instance_types import BASTION_TYPE, NAT_PRICE_USD_H
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import (
    CLUSTER_TAG,
    ID_TAG,
    OWNER_TAG,
    ExistingNetwork,
    Image,
    InstanceType,
    Interface,
    Reservation,
    Resolved,
)
from config.errors import CloudError, GpuctlError, InputError
from config.target import Target
from infra.program.interface_layout import interfaces
from infra.program.user_data import LONGEST_SOURCE, encode, insert_mount_source
from nodes.keys import ensure_key
from provision.aws.account import Caller, caller, check_account
from provision.aws.clients import DENIED, UNIVERSAL, client
from provision.aws.concurrency import request_pool
from provision.aws.instance_types import instance_type, offers
from provision.aws.machine_images import BASTION_IMAGE, image, image_id
from provision.costs.prices import Price, catalogue_price, check_budget, price
from provision.preflight.existing_network import (
    Found,
    Wanted,
    check_same_network,
    choose_subnets,
    find_network,
)
from provision.preflight.launch_pins import (
    Template,
    keep_launch_fields,
    launch_template,
    machine_fields,
)
from provision.preflight.quotas import Clients, check_elastic_ips, check_vcpus, check_vpcs
from provision.preflight.reservations import find_reservation
from provision.preflight.ssh_access import (
    check_access,
    check_addresses,
    needed_elastic_ips,
    ssh_source_range,
)
from provision.records.record import folder, read
from provision.setup.session_manager import check_plugin

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient

_QUOTAS = "servicequotas:GetServiceQuota and servicequotas:ListServiceQuotas"
_TEMPLATES = "ec2:DescribeLaunchTemplates and ec2:DescribeLaunchTemplateVersions"

T = TypeVar("T")


class Problems:
    """What is wrong, in the order in which a reader of the file expects it."""

    def __init__(self) -> None:
        self.found: list[GpuctlError] = []
        self.warnings: list[str] = []

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

    def advise(self, what: str, action: str, ask: Callable[[], T]) -> T | None:
        """As `catch`, but where AWS cannot be asked there is a warning and no complaint.

        `what` could not be told, because `action` (a permission of IAM) was not answered.
        """
        try:
            return ask()
        except CloudError as error:
            why = f"{error.code}: allow {action}" if error.code in DENIED else error.message
            self.warnings.append(f"{what} could not be checked ({why})")
        except GpuctlError as error:
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

    caller: Future[Caller]
    instance_type: Future[InstanceType]
    offers: Future[dict[str, frozenset[str]]]
    image: Future[tuple[Image, int]]
    bastion_image: Future[tuple[Image, int]]
    ssh_from: Future[str]
    reservation: Future[tuple[Reservation, str] | None]
    network: Future[Found | None]
    needed_elastic_ips: Future[None]
    vpcs: Future[None]
    template: Future[Template | None]
    price: Future[Price]
    bastion_price: Future[Price]
    clients: Clients


def resolve(cluster: Cluster, target: Target, *, refresh: bool = False) -> Resolved:
    """The cluster with nothing left open; its client key exists afterwards, and nothing else new.

    A cluster that exists keeps its zone, its AMIs and its `ssh_from`, unless the file changed
    there; what its machines were launched with (provision/preflight/launch_pins.py) also goes with
    `refresh`. Raises InputError or CloudError with one line per problem.
    """
    before = _before(cluster, target)
    complaints = Problems()
    with request_pool(16) as pool:
        asked = _ask(cluster, target, before, pool)
        who = complaints.catch(asked.caller.result)
        if before and who:  # of another account's cluster nothing else is worth a line
            check_account(cluster.name, before.account, who.account)
        instance = complaints.catch(asked.instance_type.result)
        if instance:
            vcpus = pool.submit(check_vcpus, cluster, instance, asked.clients)
            complaints.advise("the vCPU quota", _QUOTAS, vcpus.result)
        node_price, bastion_price = _account_of(asked, complaints, cluster)
        launched = complaints.advise(
            "what the nodes were launched with", _TEMPLATES, asked.template.result
        )
        offers = complaints.catch(asked.offers.result)
        reservation = complaints.catch(asked.reservation.result)
        zones: tuple[str, ...] | None = None
        if reservation is not None:
            zones = (reservation[1],)
            complaints.catch(lambda: _check_entry(cluster, zones, offers))
        elif instance and offers is not None and cluster.capacity.id is None:
            zones = complaints.catch(lambda: _zones(cluster, target.region, offers, before))
        found = complaints.catch(asked.image.result)
        if instance:
            complaints.catch(lambda: _check_placement(cluster, instance))
        if found and instance:
            complaints.catch(lambda: _check_image(cluster, instance, *found))
        entry = complaints.catch(asked.bastion_image.result)
        complaints.catch(lambda: check_access(cluster, before, target))
        complaints.catch(lambda: check_plugin(cluster, target))
        ssh_from = complaints.catch(asked.ssh_from.result)
        layout: tuple[Interface, ...] | None = None
        if instance:
            layout = complaints.catch(lambda: _layout(cluster, instance))
        taken = sum(interface.type == "interface" for interface in layout or ())
        complaints.catch(lambda: check_addresses(cluster, taken or 1))
        wanted = Wanted(cluster, zones, offers or {}, taken or 1)
        network = _existing_network(asked, complaints, wanted, before)
        zones = tuple(zone for zone in zones or () if not network or zone in network.subnets)
        if instance and layout:
            complaints.catch(lambda: _check_size(cluster, instance))
    if not (who and instance and zones and found and entry and layout) or ssh_from is None:
        complaints.check()
        raise AssertionError("a question had no answer, and nobody complained")
    draft = Resolved(
        cluster=cluster,
        account=who.account,
        region=target.region,
        zone=zones[0],
        zones=zones,
        reservation=reservation[0] if reservation else None,
        existing_network=network,
        instance_type=instance.model_copy(update={"price_usd_h": node_price.usd_h}),
        interfaces=layout,
        image=found[0],
        bastion_type=BASTION_TYPE,
        bastion_image=entry[0],
        bastion_price_usd_h=bastion_price.usd_h,
        nat_price_usd_h=NAT_PRICE_USD_H,
        ssh_from=ssh_from,
        public_key="",
        user_data="",
        bastion_user_data="",
        tags={**cluster.tags, CLUSTER_TAG: cluster.name, **_marks(before, who)},
        price_source=node_price.source,
        warnings=tuple(complaints.warnings),
    )
    complaints.catch(lambda: check_budget(draft))
    complaints.check()
    key = ensure_key(folder(cluster.name, target) / "id_ed25519", f"gpuctl {cluster.name}")
    anew = draft.model_copy(update={"public_key": key, **machine_fields(cluster, instance, key)})
    return keep_launch_fields(anew, before, launched, refresh=refresh) if before else anew


def _marks(before: Resolved | None, who: Caller) -> dict[str, str]:
    """Return the tags that tell this cluster from all others; it keeps those that it has."""
    # A session's name may hold what a tag's value may not (Tag restrictions of EC2's user guide).
    owner = re.sub(r"[^\w .:/=+@-]", "_", who.arn)
    if before is None:
        return {ID_TAG: random.token_hex(4), OWNER_TAG: owner}
    # One of an early gpuctl stays without: other tags of its template would replace every node.
    return {name: before.tags[name] for name in (ID_TAG, OWNER_TAG) if name in before.tags}


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
    pricing = client(target, "pricing")
    clients = Clients(ec2, client(target, "service-quotas"))
    pinned = before.image.id if before and before.cluster.image == cluster.image else None
    entry = before.bastion_image.id if before else None
    return _Questions(
        caller=pool.submit(caller, target),
        instance_type=pool.submit(instance_type, ec2, cluster.instance_type),
        offers=pool.submit(offers, ec2, (cluster.instance_type, BASTION_TYPE)),
        image=pool.submit(_image, ec2, ssm, cluster.image, pinned),
        bastion_image=pool.submit(_image, ec2, ssm, BASTION_IMAGE, entry),
        ssh_from=pool.submit(ssh_source_range, cluster, target, before),
        reservation=pool.submit(find_reservation, ec2, cluster, before.zone if before else None),
        network=pool.submit(find_network, ec2, cluster),
        needed_elastic_ips=pool.submit(
            check_elastic_ips, cluster, needed_elastic_ips(cluster), clients
        ),
        vpcs=pool.submit(check_vpcs, cluster, clients),
        template=pool.submit(launch_template, ec2, before),
        price=pool.submit(price, cluster.instance_type, pricing, target.region),
        bastion_price=pool.submit(price, BASTION_TYPE, pricing, target.region),
        clients=clients,
    )


def _account_of(asked: _Questions, complaints: Problems, cluster: Cluster) -> tuple[Price, Price]:
    """The account's limits are checked; what comes back are the node's and the bastion's price."""
    complaints.advise("the quota of Elastic IP addresses", _QUOTAS, asked.needed_elastic_ips.result)
    complaints.advise("the quota of VPCs", _QUOTAS, asked.vpcs.result)
    node = complaints.advise("the price", "pricing:GetProducts", asked.price.result)
    with contextlib.suppress(CloudError):  # told for the node's already
        return node or catalogue_price(cluster.instance_type), asked.bastion_price.result()
    return node or catalogue_price(cluster.instance_type), catalogue_price(BASTION_TYPE)


def _existing_network(
    asked: _Questions, complaints: Problems, wanted: Wanted, before: Resolved | None
) -> ExistingNetwork | None:
    """The network that the file names, checked, or the one that the cluster is in; else None."""
    kept = len(complaints.found)
    complaints.catch(lambda: check_same_network(wanted.cluster, before))
    found = complaints.catch(asked.network.result)
    if found is None or len(complaints.found) > kept:
        return None
    network, problems = choose_subnets(found, wanted, before)
    complaints.found += problems
    return None if problems else network


def _image(ec2: "EC2Client", ssm: "SSMClient", name: str, pinned: str | None) -> tuple[Image, int]:
    return image(ec2, pinned or image_id(ssm, name))


def _zones(
    cluster: Cluster, region: str, offers: dict[str, frozenset[str]], before: Resolved | None
) -> tuple[str, ...]:
    """The zones that may take the cluster, best first: its own alone if it has one."""
    name, wanted = cluster.instance_type, cluster.capacity.zones
    fitting = sorted(offers[name])
    if cluster.network.has_bastion and not cluster.network.exists:
        fitting = sorted(offers[name] & offers[BASTION_TYPE])
    if not fitting:
        raise InputError(f"no zone of {region} offers {name}", "choose another region or type")
    if before and before.zone in fitting and (not wanted or before.zone in wanted):
        return (before.zone,)
    if zones := tuple(zone for zone in wanted or fitting if zone in fitting):
        return zones
    raise InputError(
        f"capacity.zones: {', '.join(wanted)}: none offers {name} (Unsupported)",
        f"these do: {', '.join(fitting)}",
    )


def _check_entry(
    cluster: Cluster, zones: tuple[str, ...] | None, offers: dict[str, frozenset[str]] | None
) -> None:
    """The bastion can be made in the zone that a reservation has chosen."""
    has_bastion = cluster.network.has_bastion and not cluster.network.exists
    if has_bastion and zones and offers is not None and zones[0] not in offers[BASTION_TYPE]:
        raise InputError(
            f"capacity.id: {cluster.capacity.id} is in {zones[0]}, which does not offer the"
            f" bastion's {BASTION_TYPE} (Unsupported)",
            "set network.access to elastic-ip or private",
        )


def _check_placement(cluster: Cluster, instance: InstanceType) -> None:
    """A burstable type, for one, runs in no cluster placement group."""
    strategies = instance.placement_strategies
    if cluster.placement.strategy == "none" or cluster.capacity.id is not None:
        return
    if strategies and "cluster" not in strategies:
        raise InputError(
            f"placement.strategy: {instance.name} runs in no cluster placement group"
            " (InvalidParameterCombination)",
            "set it to none, or choose another type",
        )


def _check_image(cluster: Cluster, instance: InstanceType, found: Image, size_gib: int) -> None:
    if found.architecture != instance.architecture:
        raise InputError(
            f"image {cluster.image} is for {found.architecture},"
            f" {instance.name} is {instance.architecture} (InvalidParameterValue)",
            "name an image of that architecture (ami-…)",
        )
    needs = found.boot_mode if found.boot_mode in ("uefi", "legacy-bios") else ""
    if needs and instance.boot_modes and needs not in instance.boot_modes:
        raise InputError(
            f"image {cluster.image} boots by {needs} only,"
            f" {instance.name} by {' or '.join(instance.boot_modes)}",
            "name an image that boots so (ami-…), such as one with boot mode uefi-preferred",
        )
    if size_gib > cluster.storage.root.gib:
        raise InputError(
            f"storage.root.gib: {cluster.storage.root.gib} is less than the"
            f" {size_gib} GiB of image {cluster.image}",
            f"set it to {size_gib} or more",
        )


def _check_size(cluster: Cluster, instance: InstanceType) -> None:
    """User data fits, whatever its key and its file system will be."""
    encode(
        insert_mount_source(
            machine_fields(cluster, instance, "k" * 100)["user_data"], LONGEST_SOURCE
        )
    )


def _layout(cluster: Cluster, instance: InstanceType) -> tuple[Interface, ...]:
    return interfaces(instance, cluster.network.efa, cluster.network.interfaces)
