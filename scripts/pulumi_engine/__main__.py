"""Install Pulumi's engine, and build it if it cannot be downloaded (`make engine`).

gpuctl finds the built engine in its cache, where its own download would be.
"""

import sys
from functools import partial

from cli.output import Output
from config.errors import GpuctlError, InfraError
from config.progress import Progress, Reporter
from infra.stack.installation import (
    RELEASES,
    Engine,
    download_release,
    install_engine,
    installed_engine,
)
from scripts.pulumi_engine.build import build_engine


def ensure_engine(report: Reporter, releases: str = RELEASES) -> Engine:
    """Return an engine that gpuctl finds from now on; build one if none can be downloaded.

    `releases` is the URL of Pulumi's releases.
    Raises InputError if the setting `pulumi` is wrong: gpuctl would not use the built engine then.
    Raises InfraError if the build fails.
    """
    engine = installed_engine()
    if engine is not None:
        return engine
    try:
        return install_engine(partial(download_release, releases=releases), report)
    except InfraError as error:
        report(Progress("engine", "download", "failed", f"{error.message}; building instead"))
    return install_engine(build_engine, report)


def main() -> None:
    """Install the engine, with progress on stderr."""
    try:
        with Output(as_json=True).progress() as progress:
            ensure_engine(progress.report)
    except GpuctlError as error:
        sys.exit(f"engine: {error}")
    except KeyboardInterrupt:
        sys.stderr.write("engine: interrupted; nothing is installed\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
