"""The AMIs of the lab's regions, and the SSM public parameters that name the latest ones."""

from types import SimpleNamespace
from typing import Any, ClassVar

from moto.core.utils import utcnow
from moto.ec2.models.amis import Ami as MotoAmi
from moto.ssm import urls as ssm_urls
from moto.ssm.models import Parameter, SimpleSystemManagerBackend

from lab.amis import FAMILIES, ImageFamily
from lab.api.errors import Refusal
from lab.api.sessions import SessionActions


class Ami(MotoAmi):  # type: ignore[misc]  # moto is untyped here
    """An AMI that a machine can boot."""

    def __init__(self, backend: Any, family: ImageFamily) -> None:
        self.family = family
        super().__init__(
            backend,
            family.ami_id(backend.region_name),
            name=family.name,
            description=family.name,
            owner_id=family.owner,
            owner_alias="amazon" if family.flavour == "dlami" else None,
            public=bool(family.parameter),
            virtualization_type="hvm",
            architecture="x86_64",
            image_location=f"{family.owner}/{family.name}",
            hypervisor="xen",
            root_device_type="ebs",
            root_device_name=family.root_device,
            region_name=f"{backend.region_name}a",
            boot_mode="uefi-preferred",
        )

    @property
    def architecture(self) -> str:
        """x86_64, unless a fault sets another one; the fault spares the bastion's image."""
        fault = self.ec2_backend.lab.faults.arguments("image-architecture")
        is_bastions = self.family.name.startswith("debian-12")
        return fault[0] if fault and not is_bastions else self._architecture

    @architecture.setter
    def architecture(self, value: str) -> None:
        self._architecture = value

    @property
    def ena_support(self) -> bool:
        """True: all images of recent years have ENA's driver."""
        return True

    @property
    def platform_details(self) -> str:
        """The platform as AWS bills it."""
        return "Linux/UNIX"

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        """The root device, from the image's snapshot."""
        return [
            {
                "DeviceName": self.root_device_name,
                "Ebs": {
                    "SnapshotId": self.ebs_snapshot.id,
                    "VolumeSize": self.family.size_gib,
                    "DeleteOnTermination": True,
                    "VolumeType": "gp3",
                    "Encrypted": False,
                },
            }
        ]


def find_ami(backend: Any, image_id: str) -> Ami:
    """Return the AMI; InvalidAMIID.NotFound if the region has none with this id."""
    ami = backend.amis.get(image_id)
    if not isinstance(ami, Ami):
        raise Refusal("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
    return ami


class SsmBackend(SimpleSystemManagerBackend):  # type: ignore[misc]  # moto is untyped here
    """Systems Manager with the images' public parameters."""

    _url_module: ClassVar[SimpleNamespace] = SimpleNamespace(
        url_bases=ssm_urls.url_bases, url_paths={"{0}/$": SessionActions.dispatch}
    )

    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        for family in FAMILIES:
            if not family.parameter:
                continue
            self._parameters[family.parameter].append(
                Parameter(
                    account_id=account_id,
                    name=family.parameter,
                    value=family.ami_id(region_name),
                    parameter_type="String",
                    description=None,
                    allowed_pattern=None,
                    keyid=None,
                    last_modified_date=utcnow(),
                    version=1,
                    data_type="aws:ec2:image",
                )
            )
