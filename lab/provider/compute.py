"""Placement groups and instances."""

import base64
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from lab.provider.resource import (
    IAM_PROPAGATION_S,
    Resource,
    is_new_profile,
    tag_specifications,
    tags_of,
    wait,
)
from lab.provider.values import UNKNOWN, Properties

log = logging.getLogger(__name__)


class PlacementGroup(Resource):
    """`aws.ec2.PlacementGroup`."""

    token = "aws:ec2/placementGroup:PlacementGroup"  # noqa: S105 Pulumi's word for a type's name
    title = "EC2 Placement Group"
    lookup = ("describe_placement_groups", "GroupNames", "PlacementGroups")
    ended = ("deleting", "deleted")
    removal = ("delete_placement_group", "GroupName")
    required = frozenset({"name", "strategy"})
    replacing = frozenset({"name", "strategy"})
    computed = frozenset({"arn", "placementGroupId"})

    def problems(self, inputs: Properties) -> dict[str, str]:
        """Return a problem if the strategy is not one of EC2's."""
        strategy = inputs.get("strategy", UNKNOWN)
        if strategy not in ("cluster", "partition", "spread", UNKNOWN):
            return {
                "strategy": f'expected strategy to be one of ["cluster" "partition" "spread"],'
                f" got {strategy}"
            }
        return {}

    def create(self, inputs: Properties) -> str:
        """Create the group; its id is its name."""
        self.ec2.create_placement_group(
            GroupName=inputs["name"],
            Strategy=inputs["strategy"],
            TagSpecifications=tag_specifications("placement-group", inputs),
        )
        return str(inputs["name"])

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return the group's strategy, id and tags."""
        return {
            "name": actual["GroupName"],
            "strategy": actual["Strategy"],
            "placementGroupId": actual.get("GroupId"),
            "tags": tags_of(actual),
        }

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Change the tags."""
        self.retag(str(state["placementGroupId"]), state, inputs)


class Instance(Resource):
    """`aws.ec2.Instance`, launched from a template or from its inputs.

    Without `userDataReplaceOnChange`, the real provider stops the instance and changes user data in
    place; this one always replaces the instance.
    """

    token = "aws:ec2/instance:Instance"  # noqa: S105
    title = "EC2 Instance"
    lookup = ("describe_instances", "InstanceIds", "Reservations")
    replacing = frozenset(
        {
            "ami",
            "associatePublicIpAddress",
            "availabilityZone",
            "keyName",
            "launchTemplate",
            "rootBlockDevice",
            "subnetId",
            "userDataBase64",
        }
    )
    updating = frozenset(
        {
            "capacityReservationSpecification",
            "instanceInitiatedShutdownBehavior",
            "instanceType",
            "metadataOptions",
            "tags",
            "userData",
            "userDataReplaceOnChange",
            "volumeTags",
            "vpcSecurityGroupIds",
        }
    )
    read_inputs = frozenset({"userData"})
    computed = frozenset(
        {
            "arn",
            "availabilityZone",
            "capacityReservationSpecification",
            "instanceLifecycle",
            "instanceState",
            "placementGroup",
            "primaryNetworkInterfaceId",
            "privateDns",
            "privateIp",
            "publicDns",
            "publicIp",
            "spotInstanceRequestId",
            "subnetId",
        }
    )

    def problems(self, inputs: Properties) -> dict[str, str]:
        """Return a problem if neither inputs nor a template set image and type."""
        if "launchTemplate" not in inputs and not {"ami", "instanceType"} <= set(inputs):
            return {"ami": "one of `ami,instance_type,launch_template` must be specified"}
        return {}

    def create(self, inputs: Properties) -> str:
        """Launch the instance; return its id when EC2 has accepted the launch."""
        request = _launch(inputs)
        if root := inputs.get("rootBlockDevice"):
            image = self.ec2.describe_images(ImageIds=[inputs["ami"]])["Images"][0]
            request["BlockDeviceMappings"] = [
                {"DeviceName": image["RootDeviceName"], "Ebs": _upper(root)}
            ]
        launched: list[Any] = []

        def launch() -> bool:
            try:
                launched.append(self.ec2.run_instances(MinCount=1, MaxCount=1, **request))
            except ClientError as error:
                if not is_new_profile(error):
                    raise
            return bool(launched)

        wait(launch, "EC2 to know the instance profile", IAM_PROPAGATION_S)
        return str(launched[0]["Instances"][0]["InstanceId"])

    def is_known(self, resource_id: str, inputs: Properties) -> bool:
        """Return whether EC2 knows the instance, also one that ended at once."""
        return self.describe(resource_id) is not None

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Wait until the instance runs; set its behaviour at shutdown once more.

        The real provider does so, too (recorded 2026-11-26).
        """
        self._wait_for(resource_id, "running")
        if behaviour := inputs.get("instanceInitiatedShutdownBehavior"):
            self.ec2.modify_instance_attribute(
                InstanceId=resource_id, InstanceInitiatedShutdownBehavior={"Value": behaviour}
            )

    def read(self, resource_id: str, state: Properties) -> Properties | None:
        """Return the instance's properties; None also while it is shutting down."""
        instance = self.describe(resource_id)
        if instance is None or instance["State"]["Name"] in ("shutting-down", "terminated"):
            return None
        actual: dict[str, Any] = {
            "ami": instance.get("ImageId"),
            "availabilityZone": instance["Placement"]["AvailabilityZone"],
            "capacityReservationSpecification": _lower(
                instance["CapacityReservationSpecification"]
            ),
            "instanceLifecycle": instance.get("InstanceLifecycle", ""),
            "instanceState": instance["State"]["Name"],
            "instanceType": instance["InstanceType"],
            "keyName": instance.get("KeyName"),
            "metadataOptions": {
                name: instance["MetadataOptions"].get(_upper_name(name)) for name in _METADATA
            },
            "placementGroup": instance["Placement"].get("GroupName"),
            "primaryNetworkInterfaceId": _primary(instance).get("NetworkInterfaceId"),
            "privateDns": instance.get("PrivateDnsName"),
            "privateIp": instance.get("PrivateIpAddress"),
            "publicDns": instance.get("PublicDnsName"),
            "publicIp": instance.get("PublicIpAddress"),
            "spotInstanceRequestId": instance.get("SpotInstanceRequestId", ""),
            "subnetId": instance.get("SubnetId"),
            "tags": tags_of(instance),
            "vpcSecurityGroupIds": [g["GroupId"] for g in instance.get("SecurityGroups", [])],
        }
        if launch := state.get("launchTemplate"):
            version = _all_tags(instance).get("aws:ec2launchtemplate:version")
            actual["launchTemplate"] = {**launch, "version": version or launch.get("version")}
        if not state.get("userDataBase64"):
            actual["userData"] = state.get("userData") or self._user_data(resource_id)
        if state.get("volumeTags"):
            actual["volumeTags"] = self._volume_tags(resource_id) or state["volumeTags"]
        return {**state, **actual}

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Change what differs; a new instance type requires a stop and a start."""
        # What the launch template sets (a node's groups and type) is no input of the instance.
        given = self.updating & inputs.keys()
        changed = {name for name in given if state.get(name) != inputs.get(name)}
        if "vpcSecurityGroupIds" in changed:
            self.ec2.modify_instance_attribute(
                InstanceId=resource_id, Groups=inputs["vpcSecurityGroupIds"]
            )
        if "instanceInitiatedShutdownBehavior" in changed:
            self.ec2.modify_instance_attribute(
                InstanceId=resource_id,
                InstanceInitiatedShutdownBehavior={
                    "Value": inputs["instanceInitiatedShutdownBehavior"]
                },
            )
        if "metadataOptions" in changed:
            self.ec2.modify_instance_metadata_options(
                InstanceId=resource_id, **_upper(inputs["metadataOptions"])
            )
        if "volumeTags" in changed:
            self._retag_volumes(resource_id, state, inputs)
        if "instanceType" in changed:
            self._change_type(resource_id, inputs["instanceType"])
        self.retag(resource_id, state, inputs)

    def delete(self, resource_id: str, state: Properties) -> None:
        """Terminate the instance, which also removes its interfaces and volumes.

        As the real provider does, allow the termination first, cancel the request of a spot
        instance, and only log a refusal of the former (resourceInstanceDelete of
        hashicorp/terraform-provider-aws at 5.49, recorded 2026-11-26).
        """
        try:
            self.ec2.modify_instance_attribute(
                InstanceId=resource_id, DisableApiTermination={"Value": False}
            )
        except ClientError as error:
            log.warning("%s: %s", resource_id, error)
        if state.get("instanceLifecycle") == "spot":
            self._cancel(state["spotInstanceRequestId"])
        self.ec2.terminate_instances(InstanceIds=[resource_id])
        self._wait_for(resource_id, "terminated")

    def _cancel(self, request: str) -> None:
        """Cancel a spot request; RuntimeError, also if EC2 does not know it, ends the deletion."""
        try:
            self.ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request])
        except ClientError as error:
            raise RuntimeError(f"cancelling EC2 Spot Fleet Request ({request}): {error}") from error

    def describe(self, resource_id: str) -> Any | None:
        """Return EC2's description of the instance."""
        reservation = super().describe(resource_id)
        return None if reservation is None else reservation["Instances"][0]

    def _wait_for(self, resource_id: str, target: str) -> None:
        """Wait until the instance is in the state; RuntimeError if it terminates instead."""

        def reached() -> bool:
            instance = self.describe(resource_id)
            state = "terminated" if instance is None else str(instance["State"]["Name"])
            if state == "terminated" and target != "terminated":
                reason = ((instance or {}).get("StateReason") or {}).get("Message", "")
                raise RuntimeError(
                    f"waiting for EC2 Instance ({resource_id}) to be {target}: it is terminated"
                    + (f": {reason}" if reason else "")
                )
            return state == target

        wait(reached, f"EC2 Instance ({resource_id}) to be {target}")

    def _user_data(self, resource_id: str) -> str | None:
        """Return the hash of the user data, as the real provider keeps them; None without any.

        It reads them also where they came from a launch template. They cannot change while the
        instance runs, so this one asks once.
        """
        answer = self.ec2.describe_instance_attribute(InstanceId=resource_id, Attribute="userData")
        encoded = answer.get("UserData", {}).get("Value")
        return encoded and hashlib.sha1(base64.b64decode(encoded)).hexdigest()  # noqa: S324

    def _change_type(self, resource_id: str, instance_type: str) -> None:
        self.ec2.stop_instances(InstanceIds=[resource_id])
        self._wait_for(resource_id, "stopped")
        self.ec2.modify_instance_attribute(
            InstanceId=resource_id, InstanceType={"Value": instance_type}
        )
        self.ec2.start_instances(InstanceIds=[resource_id])
        self._wait_for(resource_id, "running")

    def _volume_tags(self, resource_id: str) -> dict[str, str]:
        """Return the tags of all volumes that are attached to the instance, merged."""
        filters: Any = [{"Name": "attachment.instance-id", "Values": [resource_id]}]
        volumes = self.ec2.describe_volumes(Filters=filters)["Volumes"]
        return {key: tag for volume in volumes for key, tag in tags_of(volume).items()}

    def _retag_volumes(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        instance = self.describe(resource_id) or {}
        for mapping in instance.get("BlockDeviceMappings", []):
            old, new = ({"tags": which.get("volumeTags")} for which in (state, inputs))
            self.retag(mapping["Ebs"]["VolumeId"], old, new)


_METADATA = ("httpEndpoint", "httpTokens", "httpPutResponseHopLimit")


def _all_tags(instance: Any) -> dict[str, str]:
    """Return the instance's tags, also those that AWS sets."""
    return {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}


def _launch(inputs: Properties) -> dict[str, Any]:
    """Return RunInstances' parameters for an instance's inputs."""
    plain = {
        "CapacityReservationSpecification": _upper(inputs.get("capacityReservationSpecification")),
        "ImageId": inputs.get("ami"),
        "InstanceType": inputs.get("instanceType"),
        "KeyName": inputs.get("keyName"),
        "InstanceInitiatedShutdownBehavior": inputs.get("instanceInitiatedShutdownBehavior"),
        "LaunchTemplate": _template(inputs.get("launchTemplate")),
        "MetadataOptions": _upper(inputs.get("metadataOptions")),
        "NetworkInterfaces": _interface(inputs),
        "Placement": _upper({"availabilityZone": inputs.get("availabilityZone")}),
        # boto3 encodes user data of RunInstances by itself.
        "UserData": base64.b64decode(inputs.get("userDataBase64") or ""),
        "TagSpecifications": [
            *tag_specifications("instance", inputs),
            *tag_specifications("volume", {"tags": inputs.get("volumeTags")}),
        ],
    }
    return {name: value for name, value in plain.items() if value}


def _template(template: Mapping[str, Any] | None) -> dict[str, Any]:
    if template is None:
        return {}
    return {"LaunchTemplateId": template["id"], "Version": template.get("version", "$Default")}


def _interface(inputs: Properties) -> list[dict[str, Any]]:
    """Return the only interface of an instance that is launched without a template."""
    if not inputs.get("subnetId"):
        return []
    public = inputs.get("associatePublicIpAddress")
    return [
        {
            "DeviceIndex": 0,
            "SubnetId": inputs["subnetId"],
            "Groups": inputs.get("vpcSecurityGroupIds") or [],
            "DeleteOnTermination": True,
            **({} if public is None else {"AssociatePublicIpAddress": public}),
        }
    ]


def _upper(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return options under EC2's names, those of mappings in them too."""
    given = (options or {}).items()
    return {
        _upper_name(name): _upper(value) if isinstance(value, Mapping) else value
        for name, value in given
        if value is not None
    }


def _lower(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return EC2's options under Pulumi's names, those of mappings in them too."""
    return {
        name[0].lower() + name[1:]: _lower(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
    }


def _upper_name(name: str) -> str:
    return name[0].upper() + name[1:]


def _primary(instance: Any) -> Mapping[str, Any]:
    """Return the last interface with device index 0, of whatever card, as the real provider does.

    Source: hashicorp/terraform-provider-aws, internal/service/ec2/ec2_instance.go (2026-11-22).
    """
    primary: Mapping[str, Any] = {}
    for interface in instance.get("NetworkInterfaces", []):
        if interface["Attachment"]["DeviceIndex"] == 0:
            primary = dict(interface)
    return primary
