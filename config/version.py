"""The version of gpuctl."""


def gpuctl_version() -> str:
    """Return the version of gpuctl as it is installed."""
    from importlib.metadata import version  # noqa: PLC0415  16 ms, which few commands need

    return version("gpuctl-cluster")
