"""Slurm's commands inside a run of a batch script: the script's start, `srun` and `scontrol`.

`install` copies this folder to the run's, which containers have too; there it runs on any Python
from 3.8 on. Rules are those of sbatch(1), srun(1) and src/srun of SchedMD/slurm@284c3b95, read
2026-11-28.
"""
