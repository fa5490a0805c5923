"""Launch templates: every change creates a new version."""

from typing import Any

from lab.provider.resource import Resource, aws_tags, tag_specifications, tags_of
from lab.provider.values import Properties

_DATA = {
    "blockDeviceMappings": "BlockDeviceMappings",
    "capacityReservationSpecification": "CapacityReservationSpecification",
    "iamInstanceProfile": "IamInstanceProfile",
    "imageId": "ImageId",
    "instanceInitiatedShutdownBehavior": "InstanceInitiatedShutdownBehavior",
    "instanceMarketOptions": "InstanceMarketOptions",
    "instanceType": "InstanceType",
    "keyName": "KeyName",
    "metadataOptions": "MetadataOptions",
    "networkInterfaces": "NetworkInterfaces",
    "placement": "Placement",
    "tagSpecifications": "TagSpecifications",
    "userData": "UserData",
}
"""Properties that belong to a version's data, and EC2's names for them."""

_BOOLEANS = frozenset(
    {"AssociatePublicIpAddress", "DeleteOnTermination", "Encrypted", "EbsOptimized"}
)
"""Fields that Pulumi represents as text, because they have a third value, `unset`."""


class LaunchTemplate(Resource):
    """`aws.ec2.LaunchTemplate`."""

    token = "aws:ec2/launchTemplate:LaunchTemplate"  # noqa: S105 Pulumi's word for a type's name
    title = "EC2 Launch Template"
    lookup = ("describe_launch_templates", "LaunchTemplateIds", "LaunchTemplates")
    removal = ("delete_launch_template", "LaunchTemplateId")
    required = frozenset({"name"})
    replacing = frozenset({"name"})
    updating = frozenset({*_DATA, "updateDefaultVersion", "tags"})
    computed = frozenset({"arn", "defaultVersion", "latestVersion"})
    renewed = frozenset({"defaultVersion", "latestVersion"})

    def create(self, inputs: Properties) -> str:
        """Create the template with its first version; return its id."""
        made = self.ec2.create_launch_template(
            LaunchTemplateName=inputs["name"],
            LaunchTemplateData=template_data(inputs),
            TagSpecifications=tag_specifications("launch-template", inputs),
        )
        return made["LaunchTemplate"]["LaunchTemplateId"]

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return the latest version's data; equal data keep the form that they have in `state`."""
        versions = self.ec2.describe_launch_template_versions(
            LaunchTemplateId=actual["LaunchTemplateId"], Versions=["$Latest"]
        )
        data: Any = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        known = template_data(state)
        drifted = {
            name: _from_aws(data.get(key))
            for name, key in _DATA.items()
            if data.get(key) != known.get(key)
        }
        return {
            **drifted,
            "name": actual["LaunchTemplateName"],
            "latestVersion": actual["LatestVersionNumber"],
            "defaultVersion": actual["DefaultVersionNumber"],
            "tags": tags_of(actual),
        }

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Create a new version if the data changed; change the tags."""
        if template_data(state) != template_data(inputs):
            made = self.ec2.create_launch_template_version(
                LaunchTemplateId=resource_id, LaunchTemplateData=template_data(inputs)
            )
            if inputs.get("updateDefaultVersion"):
                version = made["LaunchTemplateVersion"]["VersionNumber"]
                self.ec2.modify_launch_template(
                    LaunchTemplateId=resource_id, DefaultVersion=str(version)
                )
        self.retag(resource_id, state, inputs)


def template_data(properties: Properties) -> Any:
    """Return EC2's LaunchTemplateData for a template's properties."""
    return {
        key: _to_aws(properties[name])
        for name, key in _DATA.items()
        if properties.get(name) is not None
    }


def _to_aws(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_aws(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {_aws_name(name): _aws_value(_aws_name(name), item) for name, item in value.items()}


def _aws_name(name: str) -> str:
    # EC2 calls an interface's securityGroups Groups.
    return "Groups" if name == "securityGroups" else name[0].upper() + name[1:]


def _aws_value(key: str, value: Any) -> Any:
    if key == "Tags":
        return aws_tags(value)
    if key in _BOOLEANS and isinstance(value, str):
        return value == "true"
    return _to_aws(value)


def _from_aws(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_aws(item) for item in value]
    if not isinstance(value, dict):
        return value
    properties: Properties = {}
    for key, item in value.items():
        if key == "Tags":
            properties["tags"] = tags_of(value)
        elif key == "Groups":
            properties["securityGroups"] = item
        else:
            properties[key[0].lower() + key[1:]] = _from_aws(item)
    return properties
