"""A cluster file with `hosts`: machines that people already have. gpuctl rents nothing for it."""

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, Field

from config.cluster.cluster_file import FOLDER, Folder
from config.cluster.cluster_file import FORMS as OF_CLUSTERS
from config.errors import InputError
from config.folded_names import expand
from config.identifiers import SSH_HOST, SSH_JUMP, SSH_USER, ClusterName, SshJump, SshUser, is_valid
from config.mistakes import Mistake, refusal
from config.models import Model

WORD = r"^[^\x00-\x1f-][^\x00-\x1f]*$"


def _folded_addresses(value: str) -> str:
    """Return the text if it is a list of addresses or names, folded or not."""
    try:
        are_addresses = all(is_valid(name, SSH_HOST) for name in expand(value))
    except InputError:
        are_addresses = False
    if not are_addresses:
        hint = "write 10.0.0.7, gpu1.example.org or 10.0.0.[11-18]"
        raise refusal(Mistake("E203", "which is neither an address nor a name", hint))
    return value


def _ipv4(value: str) -> str:
    try:
        ipaddress.IPv4Address(value)
    except ValueError:
        raise refusal(Mistake("E203", "which is no IPv4 address", "write 192.168.3.9")) from None
    return value


Addresses = Annotated[str, Field(min_length=1), AfterValidator(_folded_addresses)]
Text = Annotated[str, Field(pattern=WORD)]
SshPort = Annotated[int, Field(ge=1, le=65535)]


FORMS = {
    FOLDER: OF_CLUSTERS[FOLDER],
    SSH_USER: "the name of a user: lower-case letters, digits, '_' and '-'",
    SSH_JUMP: "machines as in `ssh -J`: USER@HOST:PORT, several with commas",
    WORD: "one line of text that does not begin with '-'",
}
"""The patterns of `hosts` in words, as in cluster_file.FORMS."""


class Host(Model):
    """One machine, or several with like addresses. What it leaves out is as ssh's settings say."""

    address: Addresses = Field(
        description="Address or name, as you would give it to `ssh`: a `Host` of your"
        " `~/.ssh/config` too. Several are folded: `10.0.0.[11-18]`."
    )
    user: SshUser | None = Field(default=None, description="The user who logs in.")
    port: SshPort | None = Field(default=None, description="The port of ssh.")
    identity: Text | None = Field(default=None, description="The file of the private key.")
    jump: SshJump | None = Field(
        default=None, description="The machine to go through, as in `ssh -J`; several with commas."
    )
    internal: Annotated[str, AfterValidator(_ipv4)] | None = Field(
        default=None,
        description="The IPv4 address that the other nodes use for this one; by default the address"
        " at which your login arrives on it.",
    )


class HostsCluster(Model):
    """A cluster file with `hosts`."""

    name: ClusterName = Field(description="The cluster's name.")
    hosts: Annotated[tuple[Host, ...], Field(min_length=1, max_length=512)] = Field(
        description="The machines, in rank order: the first one is the head."
    )
    user: SshUser | None = Field(default=None, description="`user` of hosts that name none.")
    port: SshPort | None = Field(default=None, description="`port` of hosts that name none.")
    identity: Text | None = Field(default=None, description="`identity` of hosts that name none.")
    jump: SshJump | None = Field(default=None, description="`jump` of hosts that name none.")

    shared: Folder | None = Field(
        default=None,
        description="A folder of a file system that all machines share: the checkpoints of runs are"
        " below it (`GPUCTL_CHECKPOINT_DIR`). By default they are on each machine.",
    )

    @property
    def machines(self) -> tuple[Host, ...]:
        """Return one host for each address, in rank order, with the file's defaults."""
        return tuple(
            Host(
                address=address,
                user=host.user or self.user,
                port=host.port or self.port,
                identity=host.identity or self.identity,
                jump=host.jump or self.jump,
                internal=host.internal,
            )
            for host in self.hosts
            for address in expand(host.address)
        )
