"""The check that AWS has the region of a cluster."""

import botocore.session

from config.errors import InputError
from config.target import NO_AWS_FILES
from config.yaml.hints import names_hint


def check_region(region: str) -> None:
    """Raise InputError for a region that AWS does not have, as far as boto3 knows its regions.

    No request can be sent there: AWS has no address of such a name, and a proxy or the lab answers
    with a page of HTML.
    """
    session = botocore.session.Session(NO_AWS_FILES)
    known = {
        name
        for partition in session.get_available_partitions()
        for name in session.get_available_regions("ec2", partition)
    }
    if region not in known:
        raise InputError(f"AWS has no region '{region}'", names_hint(region, sorted(known)))
