"""The meaning of AWS's error codes for a launch, and their remedies, in one table.

Source of codes and meanings: "Error codes for the Amazon EC2 API"
(https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html, read 2026-11-20); for
the other services their API references. Whether a retry helps is partly karpenter's judgement
(kubernetes-sigs/karpenter-provider-aws, pkg/errors/errors.go), partly gpuctl's.
docs/look-up/errors.md is
made from this table.
"""

from dataclasses import dataclass
from typing import Literal

from config.generated_page import merged_rows

Repeat = Literal["no", "same", "other zone", "later"]


@dataclass(frozen=True)
class AwsCode:
    """A code's meaning and remedy. `repeat` is a kind of retry: at once, in another zone, later."""

    meaning: str
    repeat: Repeat
    remedy: str

    @property
    def does(self) -> str:
        """The reaction of gpuctl to the code."""
        return _DOES[self.repeat]


_DOES = {
    "no": "says so and ends",
    "same": "repeats the same request with jitter and the same ClientToken, 8 times in all",
    "other zone": "takes the next zone that may serve",
    "later": "tries again where it may wait (`capacity.wait`, removal), else says so and ends",
}

_ZONES = "name other zones in capacity.zones, ask for fewer nodes, or try again later"
_QUOTA = (
    "ask for a higher vCPU quota (Service Quotas, Amazon EC2) or for fewer nodes:"
    " https://console.aws.amazon.com/servicequotas/home/services/ec2/quotas"
)
_FILES = "remove file systems that nobody needs, or ask for a higher quota (Service Quotas)"
_RATE = "other programs use up the account's request rate: try again later"
_LATER = "AWS is at fault and retries did not help: try again in some minutes"
_PERMISSION = "let an administrator allow this action: `gpuctl iam-policy` prints the least policy"
_CREDENTIALS = "renew your credentials: `aws sso login`, `aws configure` or AWS_PROFILE"
_CONFIGURATION = "change the cluster file; nothing of AWS's will make this pass"

AWS_CODES: dict[str, AwsCode] = {
    "InsufficientInstanceCapacity": AwsCode(
        "The zone has not that many instances of the type now.", "other zone", _ZONES
    ),
    "InsufficientCapacity": AwsCode(
        "The zone has no room for the request now.", "other zone", _ZONES
    ),
    "InsufficientHostCapacity": AwsCode(
        "The zone has no dedicated host for the request now.", "other zone", _ZONES
    ),
    "InsufficientVolumeCapacity": AwsCode(
        "The zone has no room for the volume now.", "other zone", _ZONES
    ),
    "InsufficientAddressCapacity": AwsCode(
        "AWS has no public address to give now.", "later", "try again later, or in another region"
    ),
    "UnfulfillableCapacity": AwsCode(
        "No spot capacity of the type now.",
        "other zone",
        "name other zones, another type, or capacity.type: on-demand",
    ),
    "Unsupported": AwsCode(
        "The zone does not offer the type, or not so.",
        "other zone",
        "name a zone in capacity.zones that offers the type",
    ),
    "ReservationCapacityExceeded": AwsCode(
        "The reservation has fewer free slots than are asked for.",
        "later",
        "wait until the reservation's slots are free, or ask for fewer nodes",
    ),
    "InvalidCapacityReservationId": AwsCode(
        "The reservation does not exist, or not for this account and region.",
        "no",
        "name one that exists: `gpuctl capacity TYPE` lists yours",
    ),
    "VcpuLimitExceeded": AwsCode("The account's vCPU quota is used up.", "no", _QUOTA),
    "InstanceLimitExceeded": AwsCode("The account's quota of instances is used up.", "no", _QUOTA),
    "MaxSpotInstanceCountExceeded": AwsCode("The account's spot quota is used up.", "no", _QUOTA),
    "Server.SpotInstanceTermination": AwsCode(
        "AWS took the spot instance back (a state's reason, not an answer).",
        "later",
        "`gpuctl up` makes the node again where the zone has room, or use capacity.type: on-demand",
    ),
    "SpotMaxPriceTooLow": AwsCode(
        "The spot price is above the highest allowed.", "no", "use capacity.type: on-demand"
    ),
    "AddressLimitExceeded": AwsCode(
        "The account's quota of Elastic IP addresses (L-0263D0A3) is used up.",
        "no",
        "release an Elastic IP address, or ask for a higher quota (L-0263D0A3)",
    ),
    "VpcLimitExceeded": AwsCode(
        "The account's quota of VPCs in the region (L-F678F1CE) is used up.",
        "no",
        "remove a VPC that nobody needs, or ask for a higher quota (L-F678F1CE)",
    ),
    "InsufficientFreeAddressesInSubnet": AwsCode(
        "The subnet has fewer free addresses than the launch needs.",
        "no",
        "use a larger network.cidr, or a subnet with free addresses",
    ),
    "TargetNotConnected": AwsCode(
        "Session Manager does not reach the instance.",
        "later",
        "see whether it runs: its image needs AWS's SSM agent, its subnet a way out",
    ),
    "InvalidParameterCombination": AwsCode(
        "Parameters that do not go together.", "no", _CONFIGURATION
    ),
    "InvalidParameterValue": AwsCode("A value that AWS does not take.", "no", _CONFIGURATION),
    "InvalidNetworkInterface": AwsCode(
        "A network interface that the type or subnet cannot have.", "no", _CONFIGURATION
    ),
    "InvalidAMIID": AwsCode(
        "The image does not exist, or not for this account and region.",
        "no",
        "name an image that exists in this region",
    ),
    "InvalidInstanceID.NotFound": AwsCode(
        "An instance that AWS does not know.",
        "no",
        "it is gone, or a few seconds old: `gpuctl status` lists what exists",
    ),
    "DependencyViolation": AwsCode(
        "Something else still needs what is to be removed.",
        "later",
        "remove what others made in the cluster's VPC, then repeat",
    ),
    "InvalidPlacementGroup.InUse": AwsCode(
        "Instances are still in the placement group, also of others.",
        "later",
        "end the instances that others launched in the placement group, then repeat",
    ),
    "PendingVerification": AwsCode(
        "AWS still verifies the account for this region.",
        "no",
        "wait until AWS has verified the account for this region",
    ),
    "OptInRequired": AwsCode(
        "The region is not enabled, or the image not subscribed to.",
        "no",
        "enable the region, or subscribe to the image, in the AWS console",
    ),
    "UnauthorizedOperation": AwsCode("The credentials may not do this.", "no", _PERMISSION),
    # https://github.com/determined-ai/determined/issues/1830 (2026-11-25)
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": AwsCode(
        "The account has had no spot instance yet, and the credentials may not create EC2's"
        " service-linked role for them.",
        "no",
        "let an administrator allow iam:CreateServiceLinkedRole, or create the role once: `aws iam"
        " create-service-linked-role --aws-service-name spot.amazonaws.com`",
    ),
    "FileSystemAlreadyExists": AwsCode(
        "A file system of that cluster exists already, left by a killed command.",
        "no",
        "remove it: `gpuctl down NAME`, then repeat the command",
    ),
    "FileSystemLimitExceeded": AwsCode(
        "The account may not have another EFS file system in the region.", "no", _FILES
    ),
    "ServiceLimitExceeded": AwsCode(
        "The account may not have that much of FSx in the region.", "no", _FILES
    ),
    "InvalidNetworkSettings": AwsCode(
        "FSx cannot work in the subnet or with its security group.", "no", _CONFIGURATION
    ),
    "UnsupportedAvailabilityZone": AwsCode(
        "The zone has no EFS.", "other zone", "name other zones in capacity.zones"
    ),
    "FileSystemInUse": AwsCode(
        "The file system has mount targets yet.", "later", "repeat `gpuctl down`"
    ),
    "AccessDenied": AwsCode("The credentials may not do this.", "no", _PERMISSION),
    "AccessDeniedException": AwsCode("The credentials may not do this.", "no", _PERMISSION),
    "AuthFailure": AwsCode("The credentials are not valid.", "no", _CREDENTIALS),
    "InvalidClientTokenId": AwsCode("The access key does not exist.", "no", _CREDENTIALS),
    "UnrecognizedClientException": AwsCode("The access key does not exist.", "no", _CREDENTIALS),
    "SignatureDoesNotMatch": AwsCode("The secret key is not the key's.", "no", _CREDENTIALS),
    "InvalidSignatureException": AwsCode("The secret key is not the key's.", "no", _CREDENTIALS),
    "ExpiredToken": AwsCode("The session of the credentials is over.", "no", _CREDENTIALS),
    "ExpiredTokenException": AwsCode("The session of the credentials is over.", "no", _CREDENTIALS),
    "RequestExpired": AwsCode(
        "The request's time is not now.", "no", "set this machine's clock, or renew credentials"
    ),
    "RequestLimitExceeded": AwsCode("The account asks EC2 too often.", "same", _RATE),
    "ThrottlingException": AwsCode("The account asks the service too often.", "same", _RATE),
    "ServiceUnavailable": AwsCode("AWS cannot serve the request now.", "same", _LATER),
    "Unavailable": AwsCode("AWS cannot serve the request now.", "same", _LATER),
    "InternalError": AwsCode("AWS failed.", "same", _LATER),
    "InternalFailure": AwsCode("AWS failed.", "same", _LATER),
    "ServerInternal": AwsCode("AWS failed.", "same", _LATER),
}
"""The table by code; `aws_code` finds `InvalidAMIID.Malformed` by the part before the dot."""


def aws_code(code: str) -> AwsCode | None:
    """Return the row of AWS's `code`, or of its part before the dot; None if neither is known."""
    return AWS_CODES.get(code) or AWS_CODES.get(code.partition(".")[0])


def remedy(code: str) -> str:
    """Return the remedy for AWS's `code`, or a general one for codes that are not in the table."""
    known = aws_code(code)
    return known.remedy if known else f"look up {code or 'it'} in the EC2 API's list of error codes"


def errors_reference() -> str:
    """Return tables of reactions and of all codes, for docs/look-up/errors.md."""
    rows = ((f"`{code}`: {c.meaning}", f"{c.repeat} | {c.remedy}") for code, c in AWS_CODES.items())
    return "\n".join(
        [
            "| worth repeating | gpuctl |",
            "| --- | --- |",
            *(f"| {repeat} | {does} |" for repeat, does in _DOES.items()),
            "",
            "| code and meaning | worth repeating | remedy |",
            "| --- | --- | --- |",
            *merged_rows(rows, "<br>"),
            "",
        ]
    )
