"""The lab's AWS API: moto's server for EC2, SSM and STS, and what moto lacks for GPU clusters.

moto reads megabytes of JSON when it is imported and at the first request. Three measures halve that
time for every process that imports this package: all sessions of botocore share one loader of data
files, EC2's model is read before several requests at once read it each, and the garbage collector
does not search the new objects, which all stay. A fourth halves the time of small requests: moto
would list the methods of a service's class, 316 for EC2, at every request.
"""

import functools
import gc

import botocore.session

botocore.session.create_loader = functools.cache(botocore.session.create_loader)

gc.disable()
import moto.core.responses  # noqa: E402
import moto.ec2.models  # noqa: E402  (after the measures)
import moto.moto_server.werkzeug_app  # noqa: E402
from moto.core.utils import get_service_model, method_names_from_class  # noqa: E402

moto.core.responses.method_names_from_class = functools.cache(method_names_from_class)

get_service_model("ec2")
gc.enable()
gc.freeze()
