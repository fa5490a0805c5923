"""Print where a task of Slurm runs."""

import os

names = ("SLURM_PROCID", "WORLD_SIZE", "SLURM_LOCALID", "MASTER_ADDR")
print("rank {} of {}, local {}, master {}".format(*(os.environ[name] for name in names)))
