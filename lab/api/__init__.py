"""The lab's AWS API: moto's server for EC2, SSM and STS, and what moto lacks for GPU clusters.

moto reads megabytes of JSON when it is imported. Two measures save a third of that time for every
process that imports this package: sessions of botocore share its data files, and the garbage
collector does not search the new objects, all of which stay.
"""

import functools
import gc

import botocore.session

botocore.session.create_loader = functools.cache(botocore.session.create_loader)

gc.disable()
import moto.ec2.models  # noqa: E402  (after the measures)
import moto.moto_server.werkzeug_app  # noqa: E402, F401

gc.enable()
gc.freeze()
