"""Instances, whose states follow their machines: pending, running, shutting down, terminated."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from moto.core.types import Base64EncodedString
from moto.core.utils import utcnow
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance as MotoInstance
from moto.ec2.models.instances import InstanceState, StateReason
from moto.ec2.utils import random_eni_attach_id, random_spot_request_id

from lab.api.interfaces import InterfaceRequest, NetworkInterface
from lab.api.launch import ResolvedLaunch
from lab.api.sessions import profile_of
from lab.machines.machine import MachineSpec

STATES = {
    "pending": 0,
    "running": 16,
    "shutting-down": 32,
    "terminated": 48,
    "stopping": 64,
    "stopped": 80,
}


def _local_disks(name: str) -> int:
    """Return the number of the type's local disks."""
    disks = INSTANCE_TYPES.get(name, {}).get("InstanceStorageInfo", {}).get("Disks", ())
    return sum(disk.get("Count", 0) for disk in disks)


class Instance(MotoInstance):  # type: ignore[misc]  # moto is untyped here
    """An instance of moto with all its interfaces and the state of its machine.

    moto serializes it by its class name. `nics` maps positions to interfaces, the primary one
    first: a device index would not do, because it is unique on one card only.
    """

    def __init__(self, backend: Any, launch: ResolvedLaunch, index: int) -> None:
        parameters = launch.parameters
        primary = launch.groups_of(launch.interfaces[0])
        encoded = parameters.get("UserData")
        super().__init__(
            backend,
            launch.image.id,
            None if encoded is None else Base64EncodedString(str(encoded)),
            [backend.get_security_group_from_id(group) for group in primary],
            instance_type=launch.instance_type,
            region_name=backend.region_name,
            subnet_id=launch.subnet.id,
            key_name=parameters.get("KeyName"),
            ami_launch_index=index,
            ebs_optimized=bool(parameters.get("EbsOptimized")),
            disable_api_termination=bool(parameters.get("DisableApiTermination")),
            disable_api_stop=bool(parameters.get("DisableApiStop")),
            instance_initiated_shutdown_behavior=parameters.get("InstanceInitiatedShutdownBehavior")
            or "stop",
            metadata_options=parameters.get("MetadataOptions") or {},
            monitoring_state="enabled"
            if (parameters.get("Monitoring") or {}).get("Enabled")
            else "disabled",
            client_token=parameters.get("ClientToken"),
            lifecycle=_lifecycle(parameters),
        )
        self.launch = launch
        reservation = launch.reservation
        self.capacity_reservation_id = reservation.id if reservation else None
        self.is_request_cancelled = False
        self.capacity_reservation_specification = parameters.get(
            "CapacityReservationSpecification"
        ) or {"CapacityReservationPreference": "open"}
        if self.lifecycle == "spot":
            self.spot_instance_request_id = random_spot_request_id()
            if tags := launch.tags.get("spot-instances-request"):
                backend.tags[self.spot_instance_request_id] = dict(tags)
        profile = profile_of(backend.account_id, parameters.get("IamInstanceProfile"))
        self.iam_instance_profile = profile and {"Arn": profile.arn, "Id": profile.id}
        self.placement.group_name = launch.placement_group
        self.placement.tenancy = launch.tenancy
        self.add_tags(launch.tags.get("instance", {}))
        self.become("pending")
        for position, request in enumerate(launch.interfaces):
            self._add_interface(position, request)

    def __del__(self) -> None:
        """Do nothing: `release_resources` frees the addresses, not the garbage collector."""

    def prep_nics(self, *_: Any, **__: Any) -> None:
        """Start without interfaces; moto's version would lose some. `_add_interface` adds them."""
        self.nics: dict[int, NetworkInterface] = {}

    def _add_interface(self, position: int, request: InterfaceRequest) -> None:
        subnet, alone = self.launch.subnet, len(self.launch.interfaces) == 1
        public = subnet.map_public_ip_on_launch if request.public_ip is None else request.public_ip
        interface = self.ec2_backend.create_network_interface(
            subnet,
            request.private_ip,
            group_ids=list(self.launch.groups_of(request)),
            description=request.description,
            tags=dict(self.launch.tags.get("network-interface", {})),
            delete_on_termination=request.delete_on_termination,
            device_index=request.device,
            public_ip_auto_assign=bool(public) and alone,
            takes_ip=request.takes_ip,
        )
        # DescribeInstances shows `efa` for an `efa` interface too.
        interface.interface_type = request.type
        interface.network_card_index = request.card
        interface.instance = self
        interface.attachment_id = random_eni_attach_id()
        interface.attach_time = utcnow()
        interface.status = "in-use"
        self.nics[position] = interface

    def attach_eni(self, eni: NetworkInterface, device_index: int) -> str:
        """Attach one more interface on card 0 for AttachNetworkInterface; return its id."""
        self.nics[max(self.nics, default=-1) + 1] = eni
        eni.instance = self
        eni.attachment_id = random_eni_attach_id()
        eni.attach_time = utcnow()
        eni.status = "in-use"
        eni.device_index = int(device_index)
        return str(eni.attachment_id)

    def detach_eni(self, eni: NetworkInterface) -> None:
        """Detach the interface, which is available afterwards."""
        self.nics = {key: nic for key, nic in self.nics.items() if nic is not eni}
        eni.instance = eni.attachment_id = eni.attach_time = eni.device_index = None
        eni.status = "available"

    def become(self, state: str, code: str = "", message: str = "") -> None:
        """Set the instance's state, its reason (EC2's StateReason) and the time of the change."""
        self.changed = datetime.now(UTC)
        self._state = InstanceState(state, STATES[state])
        self.state_reason = StateReason(message, code)
        self._reason = f"{message.partition(': ')[2]} ({utcnow():%Y-%m-%d %H:%M:%S} GMT)"
        if not message:
            self._reason = ""

    @property
    def private_ip(self) -> str | None:
        """The primary private address; None after termination."""
        return self.nics[0].private_ip_address if self.nics else None

    @property
    def private_ip_address(self) -> str | None:
        """The primary private address; None after termination."""
        return self.private_ip

    @property
    def private_dns_name(self) -> str:
        """The name that AWS derives from the private address; empty after termination."""
        return super().private_dns_name if self.nics else ""

    @property
    def public_ip(self) -> str | None:
        """The public address of the primary interface, if any."""
        return self.nics[0].public_ip if self.nics else None

    @property
    def public_ip_address(self) -> str | None:
        """The public address of the primary interface, if any."""
        return self.public_ip

    @property
    def subnet_id(self) -> str | None:
        """The subnet's id; None after termination."""
        return self._subnet_id

    def machine(self) -> MachineSpec:
        """Return the specification with which its machine boots."""
        subnet = self.launch.subnet
        key = self.ec2_backend.key_pairs.get(self.key_name)
        return MachineSpec(
            instance_id=self.id,
            hostname=f"ip-{str(self.private_ip).replace('.', '-')}",
            flavour=self.launch.image.family.flavour,
            private_ip=str(self.private_ip),
            prefix_length=subnet.cidr.prefixlen,
            gateway=str(next(subnet.cidr.hosts())),
            public_ip=self.public_ip,
            user_data=self.launch.user_data,
            authorized_keys=(key.public_key.strip(),) if key else (),
            instance_type=self.instance_type,
            local_disks=_local_disks(self.instance_type),
            efa_interfaces=sum(nic.interface_type != "interface" for nic in self.nics.values()),
            name=self.launch.tags.get("instance", {}).get("Name", ""),
        )

    def volumes_to_create(self) -> Iterator[tuple[str, dict[str, Any], bool]]:
        """Yield each volume's device, arguments and DeleteOnTermination; the root volume first."""
        image = self.launch.image
        requested = {
            mapping["DeviceName"]: mapping.get("Ebs") or {}
            for mapping in self.launch.parameters.get("BlockDeviceMappings") or ()
            if mapping.get("NoDevice") is None and mapping.get("Ebs")
        }
        root = {
            **image.block_device_mappings[0]["Ebs"],
            **requested.pop(image.root_device_name, {}),
        }
        for device, ebs in {image.root_device_name: root, **requested}.items():
            kind = ebs.get("VolumeType") or "gp2"
            yield (
                device,
                {
                    "size": ebs.get("VolumeSize"),
                    "zone_name": self.availability_zone,
                    "snapshot_id": ebs.get("SnapshotId"),
                    "encrypted": bool(ebs.get("Encrypted")),
                    "kms_key_id": ebs.get("KmsKeyId"),
                    "volume_type": kind,
                    "iops": ebs.get("Iops"),
                    "throughput": ebs.get("Throughput") or (125 if kind == "gp3" else None),
                },
                ebs.get("DeleteOnTermination") is not False,
            )

    def release_resources(self) -> None:
        """Release interfaces, addresses and volumes, as AWS does on termination."""
        for address in self.ec2_backend.addresses:
            if address.eni in self.nics.values():
                self.ec2_backend.disassociate_address(address=address.public_ip)
        for interface in tuple(self.nics.values()):
            interface.stop()
            if interface.delete_on_termination:
                self.ec2_backend.delete_network_interface(interface.id)
            else:
                self.detach_eni(interface)
        self.nics = {}
        self.security_groups: list[Any] = []
        self._subnet_id = None
        self.teardown_defaults()


def _lifecycle(parameters: Any) -> str | None:
    kind = (parameters.get("InstanceMarketOptions") or {}).get("MarketType")
    return None if kind in (None, "on-demand") else str(kind)
