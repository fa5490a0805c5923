"""The functions of the real provider that the program calls: they read, and create nothing."""

from typing import Any

from lab.provider.values import Properties

NETWORK_INTERFACE = "aws:ec2/getNetworkInterface:getNetworkInterface"


def network_interface(ec2: Any, arguments: Properties) -> Properties:
    """Return the one interface that all filters fit; raise RuntimeError if it is not one."""
    filters = [
        {"Name": each["name"], "Values": each["values"]} for each in arguments.get("filters", ())
    ]
    interfaces = ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
    if len(interfaces) != 1:
        raise RuntimeError(
            f"reading EC2 Network Interface: {len(interfaces)} fit the filters, not one"
        )
    (interface,) = interfaces
    return {
        "id": interface["NetworkInterfaceId"],
        "interfaceType": interface.get("InterfaceType"),
        "privateIp": interface.get("PrivateIpAddress"),
        "subnetId": interface.get("SubnetId"),
    }
