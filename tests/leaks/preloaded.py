"""What each command of a point needs, imported and read once in the process that forks them.

AWS's descriptions of its services take each command a sixth of a second of a processor otherwise.
"""

import gc
from pathlib import Path

import tests.leaks.client  # noqa: F401  (imported for the commands)
from provision.aws.clients import client, forget_clients
from tests.infra.region import target_of

_nobody = target_of(Path(), "http://127.0.0.1:1", "1")
client(_nobody, "ec2")
client(_nobody, "sts")
client(_nobody, "ssm")
for _service in ("iam", "efs", "fsx", "service-quotas", "pricing"):
    client(_nobody, _service)
forget_clients()

# A child's garbage collection would search, and so copy, all of this.
gc.collect()
gc.freeze()
