"""The lab's EC2 actions: those that moto lacks, or answers differently from AWS."""

import base64
import logging
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.core.types import Base64EncodedString
from moto.core.utils import utcnow
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.responses import EC2Response

from config.errors import LabError
from lab.api.capacity_actions import CapacityActions
from lab.api.errors import DryRun, Refusal, ServerFault, unsupported
from lab.api.instances import STATES, Instance
from lab.api.placement_groups import PlacementGroupActions
from lab.api.spot import SpotActions
from lab.api.topology import TopologyActions

log = logging.getLogger(__name__)

_ARRIVED = {
    ("terminated", "shutting-down"),
    ("stopped", "stopping"),
    ("running", "pending"),
}

CONSOLE_LIMIT = 64 * 1024
"""Bytes that GetConsoleOutput returns: the last 64 KiB (its reference, read 2026-11-20)."""


class LabResponse(
    CapacityActions,
    PlacementGroupActions,
    SpotActions,
    TopologyActions,
    EC2Response,  # type: ignore[misc]  # untyped moto
):
    """EC2's responses. Requests run one at a time, so that each one sees a consistent state."""

    def call_action(self) -> Any:
        """Return the answer; InvalidAction, not a broken connection, if it is not implemented."""
        with self.ec2_backend.lab.lock:
            try:
                self.ec2_backend.lab.faults.on_call()
                self.ec2_backend.sync_fault_reservations()
                self.ec2_backend.match_running_instances()
                if self._get_bool_param("DryRun", False):
                    return self._refuse(DryRun())
                return self._call_consistently()
            except Refusal as refusal:
                return self._refuse(refusal)
            except NotImplementedError as error:
                return self._refuse(Refusal("InvalidAction", f"The lab cannot do this: {error}"))
            except LabError as error:
                return self._refuse(ServerFault("InternalError", str(error)))
            except Exception:
                log.exception("%s failed", self._get_action())
                return self._refuse(
                    ServerFault("InternalError", "The lab failed; see its log, daemon.log.")
                )

    def _call_consistently(self) -> Any:
        """Return moto's answer as a part of EC2 gives it that does not know new resources yet."""
        propagation, action = self.ec2_backend.propagation, self._get_action()
        delay = self.ec2_backend.lab.faults.number("consistency") or 0
        if delay:
            propagation.check(action, self._get_params(), delay)
        status, headers, body = super().call_action()
        propagation.record(action, self._get_params(), body)
        return status, headers, propagation.without_young(action, body, delay) if delay else body

    def _refuse(self, refusal: Refusal) -> Any:
        status, headers, body = self.serialized(ActionResult(refusal))
        headers["status"] = str(status)
        return status, headers, body

    def serialized(self, action_result: ActionResult) -> Any:
        """Serialize like moto, but with the error's HTTP status."""
        status, headers, body = super().serialized(action_result)
        if isinstance(action_result.result, Refusal):
            status = action_result.result.status
        return status, headers, body

    def describe_instances(self) -> ActionResult:
        """Answer DescribeInstances in pages of 1000, as AWS does (moto's have 100)."""
        if self._get_param("MaxResults") is None:
            self._get_params()["MaxResults"] = 1000
        return super().describe_instances()

    def run_instances(self) -> ActionResult:
        """Answer RunInstances."""
        self.error_on_dryrun()
        request = {key: value for key, value in self._get_params().items() if value is not None}
        return ActionResult(self.ec2_backend.launch(request))

    def terminate_instances(self) -> ActionResult:
        """Answer TerminateInstances."""
        self.error_on_dryrun()
        changes = self.ec2_backend.terminate_instances(self._get_param("InstanceIds", []))
        return ActionResult({"TerminatingInstances": _changes(changes, "shutting-down")})

    def stop_instances(self) -> ActionResult:
        """Answer StopInstances."""
        self.error_on_dryrun()
        changes = self.ec2_backend.stop_instances(self._get_param("InstanceIds", []))
        return ActionResult({"StoppingInstances": _changes(changes, "stopping")})

    def start_instances(self) -> ActionResult:
        """Answer StartInstances."""
        self.error_on_dryrun()
        changes = self.ec2_backend.start_instances(self._get_param("InstanceIds", []))
        return ActionResult({"StartingInstances": _changes(changes, "pending")})

    def reboot_instances(self) -> ActionResult:
        """Refuse RebootInstances; the command `reboot` on the instance works."""
        raise unsupported("The lab does not reboot instances; run `reboot` on the instance.")

    def get_console_output(self) -> ActionResult:
        """Answer GetConsoleOutput with the output so far; Latest is for Nitro alone.

        "This option is supported on instance types that use the Nitro hypervisor"
        (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html,
        2026-11-22); metal types have no hypervisor. The text is AWS's as we remember it.
        """
        instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
        nitro = INSTANCE_TYPES[instance.instance_type].get("Hypervisor") == "nitro"
        if self._get_bool_param("Latest") and not nitro:
            raise Refusal(
                "UnsupportedOperation",
                "This instance type does not support retrieving the latest console logs.",
            )
        late = self.ec2_backend.lab.faults.number("console-late") or 0
        since = utcnow() - instance.launch_time
        text = self.ec2_backend.lab.machines.console(instance.id)
        if since.total_seconds() < late:
            text = ""
        output = base64.b64encode(text.encode()[-CONSOLE_LIMIT:]).decode()
        return ActionResult(
            {
                "InstanceId": instance.id,
                "Timestamp": utcnow(),
                "Output": Base64EncodedString(output),
            }
        )

    def describe_instance_attribute(self) -> ActionResult:
        """Answer DescribeInstanceAttribute, including block devices, which moto lacks."""
        if self._get_param("Attribute") != "blockDeviceMapping":
            return super().describe_instance_attribute()
        instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
        return ActionResult(
            {
                "InstanceId": instance.id,
                "BlockDeviceMappings": instance.block_device_mappings,
            }
        )

    def delete_network_interface(self) -> ActionResult:
        """Answer DeleteNetworkInterface; refuse that of an instance, as moto does not.

        The code and the text are in https://github.com/gruntwork-io/cloud-nuke/pull/1132
        (2026-11-25).
        """
        interface_id = self._get_param("NetworkInterfaceId")
        if self.ec2_backend.get_network_interface(interface_id).instance is not None:
            text = f"Network interface '{interface_id}' is currently in use."
            raise Refusal("InvalidParameterValue", text)
        return super().delete_network_interface()

    def modify_instance_attribute(self) -> ActionResult:
        """Answer ModifyInstanceAttribute; moto confuses a shutdown behaviour with groups.

        Spot instances have no protection against termination (the text is in
        https://github.com/hashicorp/terraform-provider-aws/pull/41206, 2026-11-26).
        """
        instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
        protection = self._get_param("DisableApiTermination.Value")
        if instance.lifecycle == "spot" and protection is not None:
            text = "Modifying 'disableApiTermination' is not supported for spot instances."
            raise Refusal("UnsupportedOperation", text)
        behaviour = self._get_param("InstanceInitiatedShutdownBehavior.Value")
        if behaviour is None:
            return super().modify_instance_attribute()
        self.error_on_dryrun()
        self.ec2_backend.modify_instance_attribute(
            self._get_param("InstanceId"), "instance_initiated_shutdown_behavior", behaviour
        )
        return EmptyResult()

    def create_launch_template(self) -> ActionResult:
        """Answer CreateLaunchTemplate without the template's tags in its data (moto adds them)."""
        result = super().create_launch_template()
        name = self._get_param("LaunchTemplateName")
        data = self.ec2_backend.get_launch_template_by_name(name).versions[0].data
        kept = [
            item
            for item in data.pop("TagSpecifications", [])
            if item["ResourceType"] != "launch-template"
        ]
        if kept:
            data["TagSpecifications"] = kept
        return result


def _changes(changes: list[tuple[Instance, str]], next_state: str) -> list[dict[str, Any]]:
    """Return each InstanceStateChange: to `next_state`, unless the instance has passed it."""
    listed = []
    for instance, before in changes:
        arrived = (before, next_state) in _ARRIVED
        listed.append(
            {
                "InstanceId": instance.id,
                "PreviousState": {"Code": STATES[before], "Name": before},
                "CurrentState": {
                    "Code": STATES[before if arrived else next_state],
                    "Name": before if arrived else next_state,
                },
            }
        )
    return listed
