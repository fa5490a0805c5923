"""Stand-ins for the tools of GPUs and EFA, for machines that have neither.

Each is one program of Python's standard library that goes into the dlami image under the tool's
own name, and prints what the tool prints for the machine's instance type: the lab writes
/etc/gpuctl-lab/instance-type.json when a machine boots. /etc/gpuctl-lab/faults.json, where there
is one, says what this machine shows instead: {"gpus": 7}. null makes the tool fail.
`lab/machines/hardware_faults.py` lists what can be broken.
"""
