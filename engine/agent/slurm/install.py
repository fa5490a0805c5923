"""Put Slurm's commands into a run's folder, `bin/slurm`."""

from __future__ import annotations

import pkgutil
import shlex
from pathlib import Path

MODULES = (
    "__init__",
    "batch",
    "frames",
    "layout",
    "resources",
    "scontrol",
    "srun",
    "srun_options",
    "start",
    "task_host",
)
COMMANDS = ("sbatch", "srun", "scontrol", "sbcast", "step")
_START = """\
import sys
sys.path.insert(0, __file__.rpartition("/")[0])
from engine.agent.slurm.start import main
sys.exit(main(sys.argv[1:]))
"""
_BASH_ENV = """\
case :$PATH: in
  *:{home}:*) ;;
  *) PATH={home}:$PATH:{home}/fallback ;;
esac
[ -z "${{GPUCTL_SLURM_BASH_ENV-}}" ] || . "$GPUCTL_SLURM_BASH_ENV"
"""
"""A login shell (`#!/bin/bash -l`) has the PATH of /etc/profile, and reads BASH_ENV behind it."""
_MODULE = """\
#!/bin/sh
echo "gpuctl: $(basename "$0") $*: there are no environment modules, nodes have their software" >&2
"""


def install(folder: Path) -> None:
    """Write the commands into `folder`/slurm, and those that a node may have into `fallback`."""
    home = folder / "slurm"
    library = home / "lib" / "engine" / "agent" / "slurm"
    library.mkdir(parents=True, exist_ok=True)
    for parent in library.parents[:2]:
        (parent / "__init__.py").touch()
    for name in MODULES:
        source = pkgutil.get_data("engine.agent.slurm", f"{name}.py")
        assert source is not None
        (library / f"{name}.py").write_bytes(source)
    start = home / "lib" / "start.py"
    start.write_text(_START)
    for name in COMMANDS:
        # -I ignores the job's PYTHONPATH and working directory.
        words = f'exec python3 -IS {shlex.quote(str(start))} {name} "$@"'
        _write(home / name, f"#!/bin/sh\n{words}\n")
    _write(home / "ssh", f'#!/bin/sh\nexec {shlex.quote(str(folder / "ssh"))} "$@"\n')
    (home / "bash_env").write_text(_BASH_ENV.format(home=home))
    (home / "fallback").mkdir(exist_ok=True)
    for name in ("module", "ml"):
        _write(home / "fallback" / name, _MODULE)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
