"""The requests to AWS that a preflight needs, sent all at once."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from config.catalogue.instance_types import BASTION_TYPE
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Image, InstanceType, Reservation, Resolved
from config.target import Target
from provision.aws.account import Caller, caller
from provision.aws.clients import client
from provision.aws.instance_types import instance_type, offers
from provision.aws.lustre_clients import CODENAMES, client_kernels
from provision.aws.machine_images import BASTION_IMAGE, image, image_id
from provision.billing.prices import Price, price
from provision.capacity.reservations import find_reservation
from provision.permissions.actions import features_of, needed
from provision.permissions.check import Missing, RoleOfNodes, missing_permissions
from provision.preflight.existing_buckets import check_buckets, check_reads
from provision.preflight.existing_network import Vpc, find_network
from provision.preflight.existing_storage import FoundStorage, find_storage
from provision.preflight.node_role import check_sessions, find_role
from provision.preflight.quotas import Clients, check_elastic_ips, check_vpcs
from provision.preflight.replacements import sent_user_data
from provision.preflight.ssh_access import needed_elastic_ips, ssh_source_range

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient


@dataclass(frozen=True)
class Requests:
    """All requests to AWS, sent and perhaps not answered yet."""

    caller: Future[Caller]
    instance_type: Future[InstanceType]
    offers: Future[dict[str, frozenset[str]]]
    image: Future[tuple[Image, int]]
    lustre: Future[tuple[str, ...]] | None
    bastion_image: Future[tuple[Image, int]]
    ssh_from: Future[str]
    reservation: Future[tuple[Reservation, str] | None]
    network: Future[Vpc | None]
    storage: Future[FoundStorage | None]
    elastic_ips: Future[None]
    vpcs: Future[None]
    sent: Future[str]
    price: Future[Price]
    bastion_price: Future[Price]
    nodes_role: Future[RoleOfNodes]
    sessions: Future[None]
    buckets: Future[tuple[str, ...]]
    reads: Future[None]
    permissions: Future[Missing]
    clients: Clients


def send_requests(
    cluster: Cluster, target: Target, before: Resolved | None, pool: ThreadPoolExecutor
) -> Requests:
    """Send all requests to AWS at once."""
    ec2, ssm = client(target, "ec2"), client(target, "ssm")
    pricing = client(target, "pricing")
    clients = Clients(ec2, client(target, "service-quotas"))
    pinned = before.image.id if before and before.cluster.image == cluster.image else None
    bastion_pinned = before.bastion_image.id if before else None
    addresses = needed_elastic_ips(cluster)
    shared = cluster.storage.shared
    needs_lustre = shared is not None and shared.type == "fsx-lustre" and cluster.image in CODENAMES
    who = pool.submit(caller, target)
    actions = needed(("plan", "up", "down"), features_of(cluster))
    role = pool.submit(lambda: find_role(cluster, target, who.result()))
    return Requests(
        caller=who,
        instance_type=pool.submit(instance_type, ec2, cluster.instance_type),
        offers=pool.submit(offers, ec2, (cluster.instance_type, BASTION_TYPE)),
        image=pool.submit(_image, ec2, ssm, cluster.image, pinned),
        lustre=pool.submit(client_kernels, target, cluster.image) if needs_lustre else None,
        bastion_image=pool.submit(_image, ec2, ssm, BASTION_IMAGE, bastion_pinned),
        ssh_from=pool.submit(ssh_source_range, cluster, target, before),
        reservation=pool.submit(find_reservation, ec2, cluster, before.zone if before else None),
        network=pool.submit(find_network, ec2, cluster),
        storage=pool.submit(find_storage, target, cluster),
        elastic_ips=pool.submit(check_elastic_ips, cluster, addresses, clients),
        vpcs=pool.submit(check_vpcs, cluster, clients),
        sent=pool.submit(sent_user_data, ec2, before),
        price=pool.submit(price, cluster.instance_type, pricing, target.region),
        bastion_price=pool.submit(price, BASTION_TYPE, pricing, target.region),
        nodes_role=role,
        sessions=pool.submit(lambda: check_sessions(cluster, target, role.result())),
        buckets=pool.submit(check_buckets, cluster, target),
        reads=pool.submit(lambda: check_reads(cluster, target, role.result())),
        permissions=pool.submit(
            lambda: missing_permissions(target, who.result(), *_known(role, actions))
        ),
        clients=clients,
    )


def _known(
    role: Future[RoleOfNodes], actions: frozenset[str]
) -> tuple[frozenset[str], RoleOfNodes]:
    """Return the actions to check, with what is known of the nodes' role.

    Whether an unknown role can be passed is not known; its own error is reported instead.
    """
    if role.exception():
        return actions - {"iam:PassRole"}, RoleOfNodes()
    return actions, role.result()


def _image(ec2: "EC2Client", ssm: "SSMClient", name: str, pinned: str | None) -> tuple[Image, int]:
    return image(ec2, pinned or image_id(ssm, name))
