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
    remedy: str
    repeat: Repeat = "no"

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
        "The zone has not that many instances of the type now.", _ZONES, "other zone"
    ),
    "InsufficientCapacity": AwsCode(
        "The zone has no room for the request now.", _ZONES, "other zone"
    ),
    "InsufficientHostCapacity": AwsCode(
        "The zone has no dedicated host for the request now.", _ZONES, "other zone"
    ),
    "InsufficientVolumeCapacity": AwsCode(
        "The zone has no room for the volume now.", _ZONES, "other zone"
    ),
    "InsufficientAddressCapacity": AwsCode(
        "AWS has no public address to give now.", "try again later, or in another region", "later"
    ),
    "UnfulfillableCapacity": AwsCode(
        "No spot capacity of the type now.",
        "name other zones, another type, or capacity.type: on-demand",
        "other zone",
    ),
    "Unsupported": AwsCode(
        "The zone does not offer the type, or not so.",
        "name a zone in capacity.zones that offers the type",
        "other zone",
    ),
    "ReservationCapacityExceeded": AwsCode(
        "The reservation has fewer free slots than are asked for.",
        "wait until the reservation's slots are free, or ask for fewer nodes",
        "later",
    ),
    "InvalidCapacityReservationId": AwsCode(
        "The reservation does not exist, or not for this account and region.",
        "name one that exists: `gpuctl capacity TYPE` lists yours",
    ),
    "VcpuLimitExceeded": AwsCode("The account's vCPU quota is used up.", _QUOTA),
    "InstanceLimitExceeded": AwsCode("The account's quota of instances is used up.", _QUOTA),
    "MaxSpotInstanceCountExceeded": AwsCode("The account's spot quota is used up.", _QUOTA),
    "Server.SpotInstanceTermination": AwsCode(
        "AWS took the spot instance back (a state's reason, not an answer).",
        "`gpuctl up` makes the node again where the zone has room, or use capacity.type: on-demand",
        "later",
    ),
    "SpotMaxPriceTooLow": AwsCode(
        "The spot price is above the highest allowed.", "use capacity.type: on-demand"
    ),
    "AddressLimitExceeded": AwsCode(
        "The account's quota of Elastic IP addresses (L-0263D0A3) is used up.",
        "release an Elastic IP address, or ask for a higher quota (L-0263D0A3)",
    ),
    "VpcLimitExceeded": AwsCode(
        "The account's quota of VPCs in the region (L-F678F1CE) is used up.",
        "remove a VPC that nobody needs, or ask for a higher quota (L-F678F1CE)",
    ),
    "InsufficientFreeAddressesInSubnet": AwsCode(
        "The subnet has fewer free addresses than the launch needs.",
        "use a larger network.cidr, or a subnet with free addresses",
    ),
    "TargetNotConnected": AwsCode(
        "Session Manager does not reach the instance.",
        "see whether it runs: its image needs AWS's SSM agent, its subnet a way out",
        "later",
    ),
    "InvalidParameterCombination": AwsCode("Parameters that do not go together.", _CONFIGURATION),
    "InvalidParameterValue": AwsCode("A value that AWS does not take.", _CONFIGURATION),
    "InvalidNetworkInterface": AwsCode(
        "A network interface that the type or subnet cannot have.", _CONFIGURATION
    ),
    "InvalidAMIID": AwsCode(
        "The image does not exist, or not for this account and region.",
        "name an image that exists in this region",
    ),
    "InvalidInstanceID.NotFound": AwsCode(
        "An instance that AWS does not know.",
        "it is gone, or a few seconds old: `gpuctl status` lists what exists",
    ),
    "DependencyViolation": AwsCode(
        "Something else still needs what is to be removed.",
        "remove what others made in the cluster's VPC, then repeat",
        "later",
    ),
    "InvalidPlacementGroup.InUse": AwsCode(
        "Instances are still in the placement group, also of others.",
        "end the instances that others launched in the placement group, then repeat",
        "later",
    ),
    "PendingVerification": AwsCode(
        "AWS still verifies the account for this region.",
        "wait until AWS has verified the account for this region",
    ),
    "OptInRequired": AwsCode(
        "The region is not enabled, or the image not subscribed to.",
        "enable the region, or subscribe to the image, in the AWS console",
    ),
    "UnauthorizedOperation": AwsCode("The credentials may not do this.", _PERMISSION),
    # https://github.com/determined-ai/determined/issues/1830 (2026-11-25)
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": AwsCode(
        "The account has had no spot instance yet, and the credentials may not create EC2's"
        " service-linked role for them.",
        "let an administrator allow iam:CreateServiceLinkedRole, or create the role once: `aws iam"
        " create-service-linked-role --aws-service-name spot.amazonaws.com`",
    ),
    "FileSystemAlreadyExists": AwsCode(
        "A file system of that cluster exists already, left by a killed command.",
        "remove it: `gpuctl down NAME`, then repeat the command",
    ),
    "FileSystemLimitExceeded": AwsCode(
        "The account may not have another EFS file system in the region.", _FILES
    ),
    "ServiceLimitExceeded": AwsCode(
        "The account may not have that much of FSx in the region.", _FILES
    ),
    "InvalidNetworkSettings": AwsCode(
        "FSx cannot work in the subnet or with its security group.", _CONFIGURATION
    ),
    "UnsupportedAvailabilityZone": AwsCode(
        "The zone has no EFS.", "name other zones in capacity.zones", "other zone"
    ),
    "FileSystemInUse": AwsCode(
        "The file system has mount targets yet.", "repeat `gpuctl down`", "later"
    ),
    "AccessDenied": AwsCode("The credentials may not do this.", _PERMISSION),
    "AccessDeniedException": AwsCode("The credentials may not do this.", _PERMISSION),
    "AuthFailure": AwsCode("The credentials are not valid.", _CREDENTIALS),
    "InvalidClientTokenId": AwsCode("The access key does not exist.", _CREDENTIALS),
    "UnrecognizedClientException": AwsCode("The access key does not exist.", _CREDENTIALS),
    "SignatureDoesNotMatch": AwsCode("The secret key is not the key's.", _CREDENTIALS),
    "InvalidSignatureException": AwsCode("The secret key is not the key's.", _CREDENTIALS),
    "ExpiredToken": AwsCode("The session of the credentials is over.", _CREDENTIALS),
    "ExpiredTokenException": AwsCode("The session of the credentials is over.", _CREDENTIALS),
    "RequestExpired": AwsCode(
        "The request's time is not now.", "set this machine's clock, or renew credentials"
    ),
    "RequestLimitExceeded": AwsCode("The account asks EC2 too often.", _RATE, "same"),
    "ThrottlingException": AwsCode("The account asks the service too often.", _RATE, "same"),
    "ServiceUnavailable": AwsCode("AWS cannot serve the request now.", _LATER, "same"),
    "Unavailable": AwsCode("AWS cannot serve the request now.", _LATER, "same"),
    "InternalError": AwsCode("AWS failed.", _LATER, "same"),
    "InternalFailure": AwsCode("AWS failed.", _LATER, "same"),
    "ServerInternal": AwsCode("AWS failed.", _LATER, "same"),
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
