"""The clusters that are planned: one for each GPU type, and one for each file of `modes/`."""

from dataclasses import dataclass
from pathlib import Path

from config.catalogue.instance_types import catalogue

_HERE = Path(__file__).parent
_MODES = _HERE / "modes"
_GOLDEN = _HERE / "golden"


@dataclass(frozen=True)
class Case:
    """A cluster file's text, and where its plan is kept."""

    text: str
    golden: Path

    @property
    def name(self) -> str:
        """Of the type or the mode."""
        return self.golden.stem

    @property
    def is_mode(self) -> bool:
        """Whether it is there for what its file says, and not for its instance type."""
        return self.golden.parent.name == "modes"

    def __str__(self) -> str:
        return f"{self.golden.parent.name}/{self.name}"


def _of_type(name: str) -> Case:
    text = f"name: {name.replace('.', '-')}\nnodes: 2\ninstance_type: {name}\n"
    return Case(text, _GOLDEN / "types" / f"{name}.txt")


QUICK = (
    "p4d.24xlarge",
    "p5.48xlarge",
    "g5.12xlarge",
    "access-bastion",
    "capacity-block",
    "capacity-spot",
    "network-vpc",
    "storage-fsx-lustre",
)
"""What `make test` plans too: three layouts of interfaces, and modes with the most resources."""

TYPES = tuple(_of_type(name) for name, entry in catalogue().items() if entry.gpu.count)
MODES = tuple(
    Case(file.read_text(), _GOLDEN / "modes" / f"{file.stem}.txt")
    for file in sorted(_MODES.glob("*.yaml"))
)
