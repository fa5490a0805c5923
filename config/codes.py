"""Every code that a diagnostic can carry: the one registry, from which the docs are made.

E0 the text is not YAML as gpuctl reads it; E1 its shape is wrong; E2 a value is wrong; W is a
warning, which does not make a file invalid. Codes keep their meaning for ever.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """What a code means, and a file that shows it: `example` is the offending line or lines."""

    meaning: str
    example: str


CODES: dict[str, Code] = {
    "E001": Code("The text is not YAML.", "nodes: [1"),
    "E002": Code("A tab stands where YAML wants spaces.", "\\tnodes: 2"),
    "E003": Code("A key is given twice; both lines are named.", "nodes: 2 … nodes: 3"),
    "E004": Code("A character that YAML forbids, or text that is not UTF-8.", "name: de\\x00mo"),
    "E005": Code("The file has no content.", "# only a comment"),
    "E006": Code("The file holds several documents.", "--- … ---"),
    "E007": Code("A YAML tag that gpuctl does not know.", "name: !Ref demo"),
    "E008": Code("Nested or repeated beyond reason, or an alias within itself.", "env: &a [*a]"),
    "E009": Code("A key is a list or a mapping.", "[a, b]: 1"),
    "E101": Code("Unknown key; the nearest allowed one, or all of them, are named.", "node: 2"),
    "E102": Code("A required key is missing.", "lifetime: {}"),
    "E103": Code("A value of the wrong type.", "nodes: two"),
    "E104": Code("A bare value that YAML readers understand differently.", "team: no, nodes: 010"),
    "E105": Code("The file is not a mapping.", "- nodes: 2"),
    "E106": Code("Neither a cluster file nor a run file.", "name: demo"),
    "E107": Code("A run file given to a command for clusters, or the reverse.", "type: task"),
    "E201": Code("A value that is not among the allowed ones.", "strategy: clustre"),
    "E202": Code("A number out of its range, or a list with too few entries.", "nodes: 0"),
    "E203": Code("A text in the wrong form.", "name: My Cluster"),
    "E204": Code("What no EC2 instance type is called, as far as known.", "p5.48xlage"),
    "E205": Code("Not an IPv4 range, or one of the wrong size.", "cidr: 10.0.0.0/8"),
    "E206": Code("A tag key that AWS or gpuctl uses itself.", "aws:owner: me"),
    "E207": Code(
        "An `env` entry that names no variable, or one that is set already.", "- NCCL_DEBUG"
    ),
    "E208": Code("A zone that is not in the region.", "zones: [eu-west-1a]"),
    "E209": Code("A version of software that the image cannot have.", "driver: '580'"),
    "E210": Code("Capacity without what its type needs, or with what it cannot use.", "id: cr-0a"),
    "E211": Code("Private access that does not say where people come from.", "access: private"),
    "E212": Code("A range or a way in that the network cannot have.", "{vpc: vpc-0a, cidr: …}"),
    "E213": Code("A volume or file system of a size or speed that AWS has not.", "iops: 40000"),
    "E214": Code("A storage key without effect, or one that the image cannot have.", "type: efs …"),
    "E215": Code("A folder that is taken.", "shared: {type: efs, path: /usr}"),
    "E230": Code("A total budget without a lifetime.", "budget: {max_total: 100}"),
    "W201": Code("`image` is accepted, but the job runs on the host.", "image: dstackai/efa"),
    "W202": Code("More than a /16 may try to ssh in.", "ssh_from: 0.0.0.0/0"),
}
