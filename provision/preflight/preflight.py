"""The checks of a cluster file against AWS before anything is created.

All requests are sent at once, and all problems are reported at once.
"""

import contextlib
import secrets as random
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta

import botocore.session

from config.catalogue.image_software import kernel_of
from config.catalogue.instance_types import BASTION_TYPE, BEFORE_TURING, NAT_PRICE_USD_H
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import (
    CLUSTER_TAG,
    ID_TAG,
    OWNER_TAG,
    ExistingNetwork,
    ExistingStorage,
    Image,
    InstanceType,
    Interface,
    Reservation,
    Resolved,
)
from config.command_text import command_text
from config.errors import CloudError, InputError
from config.target import NO_AWS_FILES, Target
from config.yaml.hints import names_hint
from infra.program.interface_layout import interfaces
from infra.program.user_data import LONGEST_SOURCE, encode, insert_mount_source
from provision.aws.account import Caller, check_account, expiry_warning, owner_tag
from provision.aws.clients import request_pool
from provision.aws.instance_types import availability_zones
from provision.aws.machine_images import OPEN_DRIVER
from provision.billing.prices import Price, catalogue_price, check_budget
from provision.preflight.existing_network import (
    NetworkNeeds,
    check_same_network,
    choose_subnets,
)
from provision.preflight.existing_storage import (
    check_not_own,
    storage_access,
    storage_warnings,
    storage_zones,
)
from provision.preflight.image_software import software_warnings
from provision.preflight.problems import Problems
from provision.preflight.quotas import check_vcpus
from provision.preflight.replacements import keep_launch_fields, machine_fields
from provision.preflight.requests import Requests, send_requests
from provision.preflight.ssh_access import (
    add_granted_keys,
    check_access,
    check_addresses,
)
from provision.setup.nodes_key import public_keys
from provision.setup.session_manager import check_plugin
from provision.state.record import ClusterRecord
from provision.state.store import ClusterStore


def check_region(region: str) -> None:
    """Raise InputError for a region that AWS does not have, as far as boto3 knows its regions.

    No request can be sent there: AWS has no address of such a name, and a proxy or the lab answers
    with a page of HTML.
    """
    session = botocore.session.Session(NO_AWS_FILES)
    known = {
        name
        for partition in session.get_available_partitions()
        # STS is in the same regions as EC2, whose model of 8 MB would be read for this list.
        for name in session.get_available_regions("sts", partition)
    }
    if region not in known:
        raise InputError(f"AWS has no region '{region}'", names_hint(region, sorted(known)))


_QUOTAS = "servicequotas:GetServiceQuota and servicequotas:ListServiceQuotas"
_SIMULATE = "iam:SimulatePrincipalPolicy"
_TEMPLATES = "ec2:DescribeLaunchTemplates and ec2:DescribeLaunchTemplateVersions"


@dataclass(frozen=True)
class _Answers:
    """All that a cluster file leaves to AWS; `zones` has the best first and is never empty."""

    who: Caller
    instance: InstanceType
    node_price: Price
    bastion_price: Price
    sent: str
    reservation: Reservation | None
    zones: tuple[str, ...]
    image: Image
    bastion_image: Image
    ssh_from: str
    layout: tuple[Interface, ...]
    network: ExistingNetwork | None
    storage: ExistingStorage | None
    boundary: str


def resolve(cluster: Cluster, store: ClusterStore, *, refresh: bool = False) -> Resolved:
    """Return the cluster with every open choice made; create its client key, and nothing else.

    A cluster that exists keeps its zone, its AMIs and its `ssh_from`, unless the file changed
    there. It also keeps the settings that its machines were launched with
    (provision/preflight/replacements.py), unless `refresh`. Raises InputError or CloudError with
    one line per problem.
    """
    target = store.target
    check_region(target.region)
    record = _last_record(cluster, store)
    before = record.resolved if record else None
    problems = Problems()
    with request_pool(16) as pool:
        requests = send_requests(cluster, target, before, pool)
        answers = _Preflight(cluster, target, before, requests, problems).answers()
    if ending := expiry_warning(target, timedelta(seconds=cluster.capacity.wait or 0)):
        problems.warnings.append(ending)
    draft = _draft(cluster, target, before, answers, tuple(problems.warnings))
    problems.catch(lambda: check_budget(draft))
    problems.check()
    keys = public_keys(cluster.name, before, target, refresh=refresh)
    fields = machine_fields(cluster, answers.instance, *keys)
    named = {"public_key": keys[0], "nodes_public_key": keys[1]}
    anew = draft.model_copy(update={**named, **fields})
    if record is None or before is None:
        return anew
    kept = keep_launch_fields(anew, before, answers.sent, refresh=refresh)
    return add_granted_keys(kept, record, target)


def _draft(
    cluster: Cluster,
    target: Target,
    before: Resolved | None,
    answers: _Answers,
    warnings: tuple[str, ...],
) -> Resolved:
    """Return the resolved cluster, still without its key and user data."""
    price = answers.node_price
    return Resolved(
        cluster=cluster,
        account=answers.who.account,
        region=target.region,
        zone=answers.zones[0],
        zones=answers.zones,
        reservation=answers.reservation,
        existing_network=answers.network,
        existing_storage=answers.storage,
        instance_type=answers.instance.model_copy(update={"price_usd_h": price.usd_h}),
        interfaces=answers.layout,
        image=answers.image,
        bastion_type=BASTION_TYPE,
        bastion_image=answers.bastion_image,
        bastion_price_usd_h=answers.bastion_price.usd_h,
        nat_price_usd_h=NAT_PRICE_USD_H,
        ssh_from=answers.ssh_from,
        # An existing role keeps its boundary: without iam:GetPolicy it is not known.
        boundary=answers.boundary or (before.boundary if before else ""),
        public_key="",
        nodes_public_key="",
        user_data="",
        bastion_user_data="",
        tags={
            **cluster.tags,
            CLUSTER_TAG: cluster.name,
            **_identity_tags(before, owner_tag(answers.who, target)),
        },
        price_source=price.source,
        warnings=warnings,
    )


@dataclass(frozen=True)
class _Preflight:
    """One cluster's checks. `answers` runs them in the order in which problems are reported."""

    cluster: Cluster
    target: Target
    before: Resolved | None
    requests: Requests
    problems: Problems

    def answers(self) -> _Answers:
        """Run all checks, and return AWS's answers; raise the problems if an answer is missing."""
        catch, requests = self.problems.catch, self.requests
        who = self._account()
        instance = self._instance_type()
        node_price, bastion_price = self._limits_and_prices()
        sent = self.problems.advise(
            "what the nodes were launched with", _TEMPLATES, requests.sent.result
        )
        reservation, zones, offers = self._places(instance)
        image = self._image(instance)
        bastion_image = catch(requests.bastion_image.result)
        catch(lambda: check_access(self.cluster, self.before, self.target))
        catch(lambda: check_plugin(self.cluster, self.target))
        boundary = self._nodes_role() if who else ""
        self.problems.warnings += catch(requests.buckets.result) or ()
        ssh_from = catch(requests.ssh_from.result)
        layout = catch(lambda: _layout(self.cluster, instance)) if instance else None
        if image and instance and layout:
            has_efa = instance.gpus > 0 and any(
                interface.type == "efa-only" for interface in layout
            )
            self.problems.warnings += software_warnings(self.cluster, image.name, has_efa=has_efa)
        zones = self._storage_zones(zones)
        network, zones = self._network(zones, offers, layout)
        storage = self._storage(network)
        if instance and layout:
            catch(lambda: _check_size(self.cluster, instance))
        if not (who and instance and zones and image and bastion_image and layout) or (
            ssh_from is None
        ):
            self.problems.check()
            raise AssertionError("an answer is missing, and no problem was noted")
        return _Answers(
            who=who,
            instance=instance,
            node_price=node_price,
            bastion_price=bastion_price,
            sent=sent or "",
            reservation=reservation,
            zones=zones,
            image=image,
            bastion_image=bastion_image[0],
            ssh_from=ssh_from,
            layout=layout,
            network=network,
            storage=storage,
            boundary=boundary,
        )

    def _nodes_role(self) -> str:
        """Check the instance profile that the file names; return the boundary for a new role."""
        requests, advise = self.requests, self.problems.advise
        ask = "iam:GetPolicy" if self.cluster.needs_role else "iam:GetInstanceProfile"
        role = advise("the nodes' role", ask, requests.nodes_role.result)
        if role and role.role and self.target.check_permissions:
            advise("the permissions of the nodes' role", _SIMULATE, requests.sessions.result)
            advise("whether nodes read storage.buckets", _SIMULATE, requests.reads.result)
        return role.boundary if role else ""

    def _account(self) -> Caller | None:
        who = self.problems.catch(self.requests.caller.result)
        if self.before and who:
            # In another account than the cluster's no other problem is worth a line.
            check_account(self.cluster.name, self.before.account, who.account)
        if who and self.target.check_permissions:
            missing = self.problems.advise(
                "the permissions", _SIMULATE, self.requests.permissions.result
            )
            if missing:
                self.problems.catch(missing.check)
        return who

    def _instance_type(self) -> InstanceType | None:
        """Return the instance type, and check that the account may run so many vCPUs."""
        instance = self.problems.catch(self.requests.instance_type.result)
        if instance:
            ask = self.requests.clients
            self.problems.advise(
                "the vCPU quota", _QUOTAS, lambda: check_vcpus(self.cluster, instance, ask)
            )
        return instance

    def _limits_and_prices(self) -> tuple[Price, Price]:
        """Check the account's quotas; return the prices of a node and of the bastion."""
        requests, advise = self.requests, self.problems.advise
        advise("the quota of Elastic IP addresses", _QUOTAS, requests.elastic_ips.result)
        advise("the quota of VPCs", _QUOTAS, requests.vpcs.result)
        node = advise("the price", "pricing:GetProducts", requests.price.result)
        node = node or catalogue_price(self.cluster.instance_type)
        with contextlib.suppress(CloudError):  # the warning about the node's price covers it
            return node, requests.bastion_price.result()
        return node, catalogue_price(BASTION_TYPE)

    def _places(
        self, instance: InstanceType | None
    ) -> tuple[Reservation | None, tuple[str, ...] | None, dict[str, frozenset[str]]]:
        """Return the reservation, the zones that may take the cluster, and what zones offer.

        The zones are None where they are not known.
        """
        offers = self.problems.catch(self.requests.offers.result)
        reserved = self.problems.catch(self.requests.reservation.result)
        if reserved is not None:
            reservation, zone = reserved
            self.problems.catch(lambda: _check_bastion_zone(self.cluster, zone, offers))
            return reservation, (zone,), offers or {}
        if not instance or offers is None or self.cluster.capacity.id is not None:
            return None, None, offers or {}
        region, before = self.target.region, self.before
        zones = self.problems.catch(lambda: _zones(self.cluster, region, offers, before))
        return None, zones, offers

    def _image(self, instance: InstanceType | None) -> Image | None:
        """Return the nodes' AMI, and check that the type can run and boot it."""
        image = self.problems.catch(self.requests.image.result)
        if instance:
            self.problems.catch(lambda: _check_placement(self.cluster, instance))
        if image and instance:
            self.problems.catch(lambda: _check_image(self.cluster, instance, *image))
        if image and self.requests.lustre:
            self._lustre_client(image[0], self.requests.lustre)
        return image[0] if image else None

    def _lustre_client(
        self, machine_image: Image, kernels_of_client: Future[tuple[str, ...]]
    ) -> None:
        """Check that AWS has a Lustre client for the image's kernel; warn if that is not known."""
        kernels = self.problems.advise("AWS's Lustre clients", "", kernels_of_client.result)
        if kernels is None:
            return
        image, kernel = self.cluster.image, kernel_of(self.cluster.image, machine_image.name)
        newest = ", ".join(kernels[-3:]) or "no kernel"
        if not kernel:
            self.problems.warnings.append(
                f"whether AWS has a Lustre client for the kernel of image {image} is not known: its"
                f" newest are for {newest}. Each node checks its kernel first, and `up` fails"
                " without a client"
            )
        elif kernel not in kernels:
            error = InputError(
                f"AWS has no Lustre client for the kernel {kernel} of image {image}; its newest are"
                f" for {newest}",
                "name an image with such a kernel (dlami-…, ami-…), or take"
                " storage.shared.type efs",
            )
            self.problems.errors.append(error)

    def _storage_zones(self, zones: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return the zones in which the nodes can mount the file system that the file names."""
        storage = self.problems.catch(self.requests.storage.result)
        if storage is None or zones is None:
            return zones
        self.problems.catch(lambda: check_not_own(storage, self.before))
        self.problems.warnings += storage_warnings(storage)
        return self.problems.catch(lambda: storage_zones(storage, zones))

    def _storage(self, network: ExistingNetwork | None) -> ExistingStorage | None:
        """Return the file system that the file names, after a check that the nodes reach it."""
        if network is None or self.requests.storage.exception():
            return None
        file_system, vpc = self.requests.storage.result(), self.requests.network.result()
        if file_system is None or vpc is None:
            return None
        ranges = {subnet.id: subnet.cidr for subnet in vpc.subnets}
        subnets = {
            zone: ranges[subnet]
            for zone, subnet in network.subnets.items()
            if zone in file_system.groups
        }
        storage, problems = storage_access(file_system, vpc.vpc, subnets)
        self.problems.errors += problems
        return storage

    def _network(
        self,
        zones: tuple[str, ...] | None,
        offers: dict[str, frozenset[str]],
        layout: tuple[Interface, ...] | None,
    ) -> tuple[ExistingNetwork | None, tuple[str, ...]]:
        """Return the existing network that the cluster uses, if any, and the zones that are left.

        In an existing network only the zones that have a fitting subnet are left.
        """
        addresses = sum(interface.type == "interface" for interface in layout or ()) or 1
        self.problems.catch(lambda: check_addresses(self.cluster, addresses))
        needs = NetworkNeeds(self.cluster, zones, offers, addresses)
        network = _existing_network(self.requests, self.problems, needs, self.before)
        return network, tuple(z for z in zones or () if not network or z in network.subnets)


def _identity_tags(before: Resolved | None, owner: str) -> dict[str, str]:
    """Return the tags for the cluster's id and owner; a cluster that exists keeps its own."""
    if before is None:
        return {ID_TAG: random.token_hex(4), OWNER_TAG: owner}
    return {name: before.tags[name] for name in (ID_TAG, OWNER_TAG) if name in before.tags}


def _last_record(cluster: Cluster, store: ClusterStore) -> ClusterRecord | None:
    """Return the cluster's record, or None for a new one; InputError for another region."""
    target = store.target
    if cluster.region and cluster.region != target.region:
        raise InputError(
            f"the file says region {cluster.region}, the command {target.region}",
            "leave one of them out",
        )
    record = store.record(cluster.name)
    if record is not None and record.region != target.region:
        raise InputError(
            f"cluster '{cluster.name}' is in {record.region}, not in {target.region}",
            "choose another name, or remove it first:"
            f" {command_text('gpuctl down {}', cluster.name)}",
        )
    return record


def _existing_network(
    requests: Requests, problems: Problems, needs: NetworkNeeds, before: Resolved | None
) -> ExistingNetwork | None:
    """Return the checked network that the file names or that the cluster is in, or None."""
    count = len(problems.errors)
    problems.catch(lambda: check_same_network(needs.cluster, before))
    vpc = problems.catch(requests.network.result)
    if vpc is None or len(problems.errors) > count:
        return None
    network, wrong = choose_subnets(vpc, needs, before)
    problems.errors += wrong
    return None if wrong else network


def _zones(
    cluster: Cluster, region: str, offers: dict[str, frozenset[str]], before: Resolved | None
) -> tuple[str, ...]:
    """Return the zones that may take the cluster, best first; its own alone if it has one.

    A Local Zone is used only if the file names it.
    """
    name, allowed = cluster.instance_type, cluster.capacity.zones
    fitting = sorted(offers[name])
    if cluster.network.has_bastion and not cluster.network.exists:
        fitting = sorted(offers[name] & offers[BASTION_TYPE])
    if not fitting:
        raise InputError(f"no zone of {region} offers {name}", "choose another region or type")
    if before and before.zone in fitting and (not allowed or before.zone in allowed):
        return (before.zone,)
    usable = allowed or availability_zones(region, fitting)
    if zones := tuple(zone for zone in usable if zone in fitting):
        return zones
    if not allowed:
        raise InputError(
            f"no availability zone of {region} offers {name}",
            f"choose another region, or name a zone in capacity.zones: {', '.join(fitting)}",
        )
    raise InputError(
        f"capacity.zones: {', '.join(allowed)}: none offers {name} (Unsupported)",
        f"these do: {', '.join(fitting)}",
    )


def _check_bastion_zone(
    cluster: Cluster, zone: str, offers: dict[str, frozenset[str]] | None
) -> None:
    """Raise InputError if the zone of the cluster's reservation does not offer the bastion."""
    has_bastion = cluster.network.has_bastion and not cluster.network.exists
    if has_bastion and offers is not None and zone not in offers[BASTION_TYPE]:
        raise InputError(
            f"capacity.id: {cluster.capacity.id} is in {zone}, which does not offer the"
            f" bastion's {BASTION_TYPE} (Unsupported)",
            "set network.access to elastic-ip or private",
        )


def _check_placement(cluster: Cluster, instance: InstanceType) -> None:
    """Raise InputError if the type cannot run in a cluster placement group.

    Burstable types cannot, for example.
    """
    strategies = instance.placement_strategies
    if cluster.placement.strategy == "none" or cluster.capacity.id is not None:
        return
    if strategies and "cluster" not in strategies:
        raise InputError(
            f"placement.strategy: {instance.name} runs in no cluster placement group"
            " (InvalidParameterCombination)",
            "set it to none, or choose another type",
        )


def _check_image(cluster: Cluster, instance: InstanceType, image: Image, size_gib: int) -> None:
    """Raise InputError if the type cannot run or boot the image, or the disk is too small."""
    if image.architecture != instance.architecture:
        raise InputError(
            f"image {cluster.image} is for {image.architecture},"
            f" {instance.name} is {instance.architecture} (InvalidParameterValue)",
            "name an image of that architecture (ami-…)",
        )
    model = BEFORE_TURING.get(instance.name.partition(".")[0])
    if model and OPEN_DRIVER in image.name:
        raise InputError(
            f"image {cluster.image} ({image.name}) has NVIDIA's open driver, and no driver for the"
            f" {model} of {instance.name}",
            "name an image with NVIDIA's proprietary driver, of branch 580 or older, or choose a"
            " newer type such as p4d.24xlarge",
        )
    needs = image.boot_mode if image.boot_mode in ("uefi", "legacy-bios") else ""
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
    """Raise InputError if the user data would be too large with the longest key and file system."""
    encode(
        insert_mount_source(
            machine_fields(cluster, instance, "k" * 100, "k" * 100)["user_data"], LONGEST_SOURCE
        )
    )


def _layout(cluster: Cluster, instance: InstanceType) -> tuple[Interface, ...]:
    return interfaces(instance, cluster.network.efa, cluster.network.interfaces)
