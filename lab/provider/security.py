"""Security groups with their rules inline, and key pairs."""

from collections.abc import Iterator
from typing import Any

from botocore.exceptions import ClientError

from lab.provider.resource import Resource, code_of, tag_specifications, tags_of
from lab.provider.values import Properties, is_unknown

_RULE = frozenset(
    {"description", "protocol", "fromPort", "toPort", "cidrBlocks", "securityGroups", "self"}
)

Atom = tuple[str, int, int, str]
"""A rule with one source or target: protocol, first port, last port, and a range or a group."""


class SecurityGroup(Resource):
    """`aws.ec2.SecurityGroup`; the inputs list all of its rules."""

    token = "aws:ec2/securityGroup:SecurityGroup"  # noqa: S105 Pulumi's word for a type's name
    title = "EC2 Security Group"
    lookup = ("describe_security_groups", "GroupIds", "SecurityGroups")
    removal = ("delete_security_group", "GroupId")
    in_use_s = 900.0
    required = frozenset({"name", "vpcId"})
    replacing = frozenset({"name", "description", "vpcId"})
    updating = frozenset({"ingress", "egress", "tags"})
    computed = frozenset({"arn", "ownerId"})

    def problems(self, inputs: Properties) -> dict[str, str]:
        """Return a problem if a rule has unknown fields, or ports with the protocol `-1`."""
        for direction in ("ingress", "egress"):
            for index, rule in enumerate(inputs.get(direction) or []):
                if is_unknown(rule):
                    continue
                if unknown := set(rule) - _RULE:
                    return {f"{direction}[{index}]": f"the lab has no {sorted(unknown)[0]}"}
                if rule.get("protocol") == "-1" and (rule["fromPort"], rule["toPort"]) != (0, 0):
                    reason = "from_port and to_port must both be 0 to use the 'ALL' \"-1\" protocol"
                    return {f"{direction}[{index}]": reason}
        return {}

    def create(self, inputs: Properties) -> str:
        """Create the group, to which AWS adds an egress rule; return its id."""
        made = self.ec2.create_security_group(
            GroupName=inputs["name"],
            Description=inputs.get("description", "Managed by Pulumi"),
            VpcId=inputs["vpcId"],
            TagSpecifications=tag_specifications("security-group", inputs),
        )
        return made["GroupId"]

    def complete(self, resource_id: str, inputs: Properties) -> None:
        """Remove AWS's egress rules, and set those of the inputs.

        As the real provider does, remove the rule for IPv6 too, which only VPCs with IPv6 have
        (resourceSecurityGroupCreate of hashicorp/terraform-provider-aws at 5.49, recorded
        2026-11-26).
        """
        for name, key, everywhere in (
            ("IpRanges", "CidrIp", "0.0.0.0/0"),
            ("Ipv6Ranges", "CidrIpv6", "::/0"),
        ):
            rule: Any = {"IpProtocol": "-1", name: [{key: everywhere}]}
            try:
                self.ec2.revoke_security_group_egress(GroupId=resource_id, IpPermissions=[rule])
            except ClientError as error:
                if code_of(error) != "InvalidPermission.NotFound":
                    raise
        self._apply(resource_id, inputs)

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return the rules and the tags; equal rules keep the form that they have in `state`."""
        group_id = actual["GroupId"]
        properties = {
            "name": actual["GroupName"],
            "description": actual["Description"],
            "vpcId": actual.get("VpcId"),
            "ownerId": actual.get("OwnerId"),
            "tags": tags_of(actual),
        }
        for direction in ("ingress", "egress"):
            atoms = _current_atoms(actual, direction)
            if atoms != set(_wanted_atoms(state.get(direction) or [], group_id)):
                properties[direction] = [_rule(atom, group_id) for atom in sorted(atoms)]
        return properties

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Change the rules and the tags."""
        self._apply(resource_id, inputs)
        self.retag(resource_id, state, inputs)

    def _apply(self, group_id: str, inputs: Properties) -> None:
        group = self.describe(group_id) or {}
        calls: tuple[tuple[str, Any, Any], ...] = (
            (
                "ingress",
                self.ec2.revoke_security_group_ingress,
                self.ec2.authorize_security_group_ingress,
            ),
            (
                "egress",
                self.ec2.revoke_security_group_egress,
                self.ec2.authorize_security_group_egress,
            ),
        )
        for direction, revoke, authorize in calls:
            actual = _current_atoms(group, direction)
            desired = _wanted_atoms(inputs.get(direction) or [], group_id)
            if gone := sorted(actual - set(desired)):
                revoke(GroupId=group_id, IpPermissions=[_permission(atom, "") for atom in gone])
            if fresh := sorted(set(desired) - actual):
                permissions = [_permission(atom, desired[atom]) for atom in fresh]
                authorize(GroupId=group_id, IpPermissions=permissions)


def _wanted_atoms(rules: list[Properties], group_id: str) -> dict[Atom, str]:
    """Split the rules into atoms with one source each; map them to their descriptions."""
    return {
        (rule["protocol"], rule["fromPort"], rule["toPort"], source): rule.get("description", "")
        for rule in rules
        for source in _sources(rule, group_id)
    }


def _sources(rule: Properties, group_id: str) -> Iterator[str]:
    yield from rule.get("cidrBlocks") or []
    yield from rule.get("securityGroups") or []
    if rule.get("self"):
        yield group_id


def _current_atoms(group: Any, direction: str) -> set[Atom]:
    permissions = group.get("IpPermissions" if direction == "ingress" else "IpPermissionsEgress")
    atoms = set()
    for permission in permissions or []:
        everything = permission["IpProtocol"] == "-1"
        ports = (0, 0) if everything else (permission["FromPort"], permission["ToPort"])
        sources = [r["CidrIp"] for r in permission.get("IpRanges") or []]
        sources += [pair["GroupId"] for pair in permission.get("UserIdGroupPairs") or []]
        atoms |= {(permission["IpProtocol"], *ports, source) for source in sources}
    return atoms


def _permission(atom: Atom, description: str) -> dict[str, Any]:
    protocol, start, end, source = atom
    text = {"Description": description} if description else {}
    permission: dict[str, Any] = {"IpProtocol": protocol}
    if protocol != "-1":
        permission |= {"FromPort": start, "ToPort": end}
    if source.startswith("sg-"):
        return permission | {"UserIdGroupPairs": [{"GroupId": source, **text}]}
    return permission | {"IpRanges": [{"CidrIp": source, **text}]}


def _rule(atom: Atom, group_id: str) -> Properties:
    protocol, start, end, source = atom
    rule: Properties = {"protocol": protocol, "fromPort": start, "toPort": end}
    if source == group_id:
        return rule | {"self": True}
    return rule | {"securityGroups" if source.startswith("sg-") else "cidrBlocks": [source]}


class KeyPair(Resource):
    """`aws.ec2.KeyPair`: a public key that EC2 installs on instances."""

    token = "aws:ec2/keyPair:KeyPair"  # noqa: S105
    title = "EC2 Key Pair"
    lookup = ("describe_key_pairs", "KeyNames", "KeyPairs")
    removal = ("delete_key_pair", "KeyName")
    required = frozenset({"keyName", "publicKey"})
    replacing = frozenset({"keyName", "publicKey"})
    computed = frozenset({"arn", "fingerprint", "keyPairId"})

    def create(self, inputs: Properties) -> str:
        """Import the key; its id is its name."""
        made = self.ec2.import_key_pair(
            KeyName=inputs["keyName"],
            PublicKeyMaterial=inputs["publicKey"].encode(),
            TagSpecifications=tag_specifications("key-pair", inputs),
        )
        return made["KeyName"]

    def properties(self, actual: Any, state: Properties) -> Properties:
        """Return the fingerprint and the tags, but, like the real provider, not the key."""
        return {
            "keyName": actual["KeyName"],
            "keyPairId": actual.get("KeyPairId"),
            "fingerprint": actual.get("KeyFingerprint"),
            "tags": tags_of(actual),
        }

    def update(self, resource_id: str, state: Properties, inputs: Properties) -> None:
        """Change the tags."""
        self.retag(str(state["keyPairId"]), state, inputs)
