"""Tables that people published, carried as figures: lines are made from them anew.

The formats are nccl-tests' own: src/common.cu, src/util.cu and the collectives of 2.9 to 2.19.6
(https://github.com/NVIDIA/nccl-tests). All sources were read on 2026-11-22.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

G = "https://github.com/"
Timing = tuple[float, float, float, int | float | None]
"""Time in us, algbw, busbw in GB/s; wrong values, or a largest difference, or None for N/A."""


@dataclass(frozen=True)
class Line:
    """A row's figures."""

    size: int
    count: int
    out: Timing
    into: Timing
    redop: str | None = "sum"
    root: int | None = -1
    dtype: str = "float"


@dataclass(frozen=True)
class PublicTable:
    """A published table. `form`: `error` up to 2.11, `wrong` since 2.13, `wide` since 2.17.3."""

    source: str
    lines: tuple[Line, ...]
    form: str = "wrong"
    prefix: str = ""
    flags: str = ""
    footer: str | None = "0 OK"
    torn_by: str = ""
    failures: tuple[str, ...] = ()
    finds: tuple[str, ...] = field(default=())
    """What Numbers says of it."""

    def text(self) -> Iterator[str]:
        """The lines as nccl-tests prints them, behind the launcher's prefix."""
        for line in self._text():
            yield from (self.prefix + part for part in line.split("\n"))

    def _text(self) -> Iterator[str]:
        if self.flags:
            yield f"# nThread 1 nGpus 1 {self.flags}"
        named = {"error": " error"}.get(self.form, "#wrong")
        yield f"#       size         count      type   redop     time   algbw   busbw {named}"
        for line in self.lines:
            begin = f"{line.size:>12}  {line.count:>12}  {line.dtype:>8}"
            begin += f"  {line.redop:>6}" if line.redop else ""
            begin += f"  {line.root:>6}" if line.root is not None else ""
            yield begin + self.torn_by + self._half(line.out) + self.torn_by + self._half(line.into)
        yield from self.failures
        if self.footer is not None:
            yield f"# Out of bounds values : {self.footer}"
            yield "# Avg bus bandwidth    : 1 "

    def _half(self, half: Timing) -> str:
        time_us, algbw, busbw, wrong = half
        decimals = 0 if time_us >= 10000 else 1 if time_us >= 100 else 2
        if wrong is None:
            last = f"{'N/A':>5}"
        elif self.form == "error":
            last = f"{wrong:>5.0e}"
        else:
            last = f"{wrong:>{6 if self.form == 'wide' else 5}g}"
        return f"  {time_us:>7.{decimals}f}  {algbw:>6.2f}  {busbw:>6.2f}  {last}"


def _rows(*figures: tuple[float, ...], **fields: object) -> tuple[Line, ...]:
    """Rows of size, count, and the six figures of both halves, with nothing wrong."""
    return tuple(
        Line(int(size), int(count), (t, a, b, 0), (u, c, d, 0), **fields)  # type: ignore[arg-type]
        for size, count, t, a, b, u, c, d in figures
    )


def _error(*figures: tuple[float, ...], **fields: object) -> tuple[Line, ...]:
    """The same with the largest differences behind each half."""
    return tuple(
        Line(int(size), int(count), (t, a, b, e), (u, c, d, f), **fields)  # type: ignore[arg-type]
        for size, count, t, a, b, e, u, c, d, f in figures
    )


_TO_1M = (
    "minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1"
    " validation: 1 graph: 0"
)
_MANY = "h100clust-worker-1:497888:497888 [0] NCCL INFO 2097152 Bytes -> Algo 5 proto 2 time 79.2\n"

TABLES = (
    PublicTable(
        G + "aws/aws-k8s-tester/pull/503",
        _rows(
            (8, 2, 12.90, 0, 0, 12.87, 0, 0),
            (16, 4, 12.88, 0, 0, 12.83, 0, 0),
            (32, 8, 22.25, 0, 0, 13.34, 0, 0),
        ),
        prefix="[1,0]<stdout>:",
    ),
    PublicTable(
        G + "coreweave/nccl-tests/pull/43",
        _rows(
            (536870912, 134217728, 1806.7, 297.16, 586.06, 1835.9, 292.43, 576.74),
            (1073741824, 268435456, 3108.8, 345.38, 681.17, 2924.7, 367.13, 724.06),
            (2147483648, 536870912, 5589.1, 384.22, 757.78, 5474.6, 392.26, 773.62),
            (4294967296, 1073741824, 10094, 425.49, 839.16, 10141, 423.54, 835.32),
            (8589934592, 2147483648, 20299, 423.16, 834.57, 20006, 429.37, 846.82),
        ),
    ),
    PublicTable(
        G + "NVIDIA/nccl-tests/issues/287",
        (Line(33554432, 8388608, (19.56, 1715.44, 0, 0), (0.78, 43046.10, 0, None), "none"),),
    ),
    PublicTable(
        G + "NVIDIA/nccl-tests/issues/176",
        _error(
            (4096, 1024, 93.73, 0.04, 0.09, 1e-06, 93.15, 0.04, 0.09, 1e-06),
            (8192, 2048, 96.51, 0.08, 0.17, 1e-06, 95.46, 0.09, 0.17, 1e-06),
            (32768, 8192, 97.72, 0.34, 0.67, 1e-06, 96.29, 0.34, 0.68, 1e-06),
            (131072, 32768, 120.9, 1.08, 2.15, 1e-06, 117.4, 1.12, 2.22, 1e-06),
            root=None,
        ),
        form="error",
    ),
    PublicTable(
        G + "NVIDIA/nccl-tests/issues/280",
        _rows(
            (8, 2, 97.98, 0, 0, 190.2, 0, 0),
            (16, 4, 135.4, 0, 0, 115.5, 0, 0),
            (32, 8, 106.8, 0, 0, 122.4, 0, 0),
        ),
        flags=_TO_1M,
        footer=None,
        failures=(
            "c2211f46f318: Test NCCL failure common.cu:1005 'unhandled CUDA error'",
            ".. c2211f46f318 pid 3288: Test failure common.cu:891",
        ),
        finds=(
            "node0: Test NCCL failure common.cu:1005 'unhandled CUDA error'",
            "nccl-tests on node0 is incomplete: it ended at 64 bytes of 1M (1048576 bytes)",
        ),
    ),
    PublicTable(
        G + "NixOS/nixpkgs/pull/251856",
        _rows((33554432, 8388608, 18.48, 1816.16, 0, 0.05, 619657.10, 0), redop="none"),
    ),
    PublicTable(
        G + "NVIDIA/nccl-tests/issues/128",
        _rows(
            (0, 0, 5.70, 0, 0, 5.54, 0, 0),
            (0, 0, 5.92, 0, 0, 5.51, 0, 0),
            (128, 4, 32.31, 0, 0, 25.35, 0.01, 0),
            (256, 8, 24.01, 0.01, 0.01, 23.18, 0.01, 0.01),
        ),
    ),
    *(
        PublicTable(
            G + "NVIDIA/nccl/issues/527",
            _error((1073741824, 268435456, *figures), root=None),
            form="error",
        )
        for figures in (
            (8142.6, 131.87, 230.77, 2e-07, 8141.2, 131.89, 230.81, 2e-07),
            (35215, 30.49, 57.17, 4e-07, 35198, 30.51, 57.20, 4e-07),
            (64782, 16.57, 31.77, 7e-07, 64827, 16.56, 31.75, 7e-07),
            (70253, 15.28, 29.61, 1e-06, 70207, 15.29, 29.63, 1e-06),
        )
    ),
    PublicTable(
        G + "aws/aws-ofi-nccl/issues/33",
        _error(
            (1048576, 262144, 1035.3, 1.01, 1.90, 5e-07, 643.4, 1.63, 3.06, 5e-07),
            (2097152, 524288, 671.4, 3.12, 5.86, 5e-07, 671.8, 3.12, 5.85, 5e-07),
            (4194304, 1048576, 1140.5, 3.68, 6.90, 5e-07, 1144.3, 3.67, 6.87, 5e-07),
            root=None,
        ),
        form="error",
    ),
    PublicTable(  # broadcast of 2.9, -c 0
        G + "NVIDIA/nccl-tests/issues/82",
        (Line(8, 2, (45.82, 0, 0, None), (38.17, 0, 0, None), None, 0),),
        form="error",
    ),
    PublicTable(
        G + "NVIDIA/nccl-tests/issues/252",
        _rows(
            (536870912, 134217728, 10052, 53.41, 93.46, 9676.9, 55.48, 97.09),
            (1073741824, 268435456, 20079, 53.48, 93.58, 19265, 55.74, 97.54),
            (2147483648, 536870912, 39871, 53.86, 94.26, 39357, 54.56, 95.49),
            (4294967296, 1073741824, 77194, 55.64, 97.37, 79688, 53.90, 94.32),
            (8589934592, 2147483648, 158070, 54.34, 95.10, 158561, 54.17, 94.80),
        ),
    ),
    PublicTable(  # sendrecv
        G + "NVIDIA/nccl-tests/issues/214",
        (
            Line(256, 64, (34.24, 0.01, 0.01, 0), (33.65, 0.01, 0.01, None)),
            Line(512, 128, (34.24, 0.01, 0.01, 0), (34.15, 0.01, 0.01, None)),
            Line(4096, 1024, (30.74, 0.13, 0.13, 0), (30.69, 0.13, 0.13, None)),
        ),
    ),
    PublicTable(  # all_gather on 32 ranks, srun --label
        G + "ROCm/rccl/issues/1490",
        _rows(
            (65536, 512, 107.5, 0.61, 0.59, 105.6, 0.62, 0.60),
            (131072, 1024, 210.0, 0.62, 0.60, 202.6, 0.65, 0.63),
            (1048576, 8192, 1456.6, 0.72, 0.70, 1304.0, 0.80, 0.78),
            redop="none",
        ),
        prefix=" 0: ",
    ),
    PublicTable(
        G + "NVIDIA/nccl-tests/issues/322",
        (),
        flags=_TO_1M,
        footer=None,
        failures=(
            "HCA-14: Test NCCL failure common.cu:1204 'unhandled cuda error (run with"
            " NCCL_DEBUG=INFO for details) / '",
            " .. HCA-14 pid 1015577: Test failure common.cu:915",
        ),
        finds=(
            "node0: Test NCCL failure common.cu:1204 'unhandled cuda error (run with"
            " NCCL_DEBUG=INFO for details) / '",
            "nccl-tests on node0 is incomplete: it ended at 8 bytes of 1M (1048576 bytes)",
        ),
    ),
    PublicTable(
        G + "NVIDIA/nccl/issues/473",
        (),
        footer=None,
        failures=("fastmoe: Test NCCL failure common.cu:777 'unhandled system error'",),
        finds=("node0: Test NCCL failure common.cu:777 'unhandled system error'",),
    ),
    PublicTable(
        G + "NVIDIA/nccl-tests/issues/66",
        (),
        footer=None,
        failures=("Test CUDA failure common.cu:730 'unknown error'",),
        finds=("node0: Test CUDA failure common.cu:730 'unknown error'",),
    ),
    PublicTable(
        G + "NVIDIA/nccl-tests/issues/131",
        (),
        flags=_TO_1M.replace("1048576", "8"),
        footer="50 FAILED",
        finds=(
            "wrong data: nccl-tests on node0 ended with `Out of bounds values : 50 FAILED`",
            "nccl-tests on node0: 1 row could not be read, other output went through them",
        ),
    ),
    PublicTable(
        G + "NVIDIA/nccl-tests/issues/232",
        _rows(
            (2097152, 524288, 113.2, 18.53, 18.53, 93.35, 22.46, 22.46),
            (4194304, 1048576, 154.4, 27.16, 27.16, 153.3, 27.37, 27.37),
            (33554432, 8388608, 812.3, 41.31, 41.31, 808.2, 41.52, 41.52),
        ),
    ),
    PublicTable(  # -o all, step in bytes
        G + "NVIDIA/nccl-tests/issues/167",
        (
            *_rows((199680, 49920, 125.8, 1.59, 2.98, 125.1, 1.60, 2.99), redop="max"),
            *_rows((200704, 50176, 125.3, 1.60, 3.00, 124.6, 1.61, 3.02), redop="max"),
            *_rows((199680, 49920, 125.4, 1.59, 2.98, 125.2, 1.59, 2.99), redop="min"),
            *_rows((200704, 50176, 126.1, 1.59, 2.99, 125.4, 1.60, 3.00), redop="min"),
        ),
        flags="minBytes 199680 maxBytes 201000 step: 1024(bytes) warmup iters: 5 iters: 20"
        " agg iters: 1 validation: 1 graph: 0",
    ),
    PublicTable(
        G + "kvcache-ai/Mooncake/pull/3484",
        _rows(
            (32768, 8192, 18.66, 1.76, 3.07, 17.95, 1.83, 3.20),
            (1048576, 262144, 27.76, 37.78, 66.11, 27.49, 38.15, 66.76),
            (33554432, 8388608, 195.40, 171.72, 300.51, 195.40, 171.73, 300.52),
        ),
        form="wide",
    ),
    PublicTable(  # all_gather of 2.8: neither redop nor root
        G + "NVIDIA/nccl-tests/issues/44",
        _error(
            (32768, 4096, 13.39, 1.22, 1.22, 0, 11.85, 1.38, 1.38, 0),
            (134217728, 16777216, 3298.6, 20.34, 20.34, 0, 3070.3, 21.86, 21.86, 0),
            redop=None,
            root=None,
        ),
        form="error",
    ),
    PublicTable(  # Hydra, NCCL_DEBUG_SUBSYS=TUNING: each half behind lines of NCCL
        G + "NVIDIA/nccl/issues/1453",
        _rows((1048576, 262144, 2280.1, 0.46, 0.88, 2291.8, 0.46, 0.88)),
        prefix="[0] ",
        torn_by=_MANY * 2,
    ),
    PublicTable(
        G + "NVIDIA/nccl-tests/issues/293",
        _rows(
            (8, 2, 17.08, 0, 0, 16.76, 0, 0),
            (512, 128, 18.30, 0.03, 0.03, 19.42, 0.03, 0.03),
            (4096, 1024, 22.76, 0.18, 0.18, 22.61, 0.18, 0.18),
        ),
    ),
    PublicTable(
        G + "deepseek-ai/DeepEP/issues/303",
        _rows((4, 1, 12.49, 0, 0, 12.61, 0, 0), (64, 16, 14.50, 0, 0.01, 14.39, 0, 0.01)),
    ),
    PublicTable(
        G + "NVIDIA/nccl/issues/318",
        _error((8, 2, 59.98, 0, 0, 2e-07, 56.81, 0, 0, 1e-07), root=None),
        form="error",
        prefix="\x1b[36m",
    ),
    PublicTable(  # 2.20.0, with PCI domains and `unalign` in its header
        G + "NVIDIA/dgx-spark-playbooks/pull/103",
        _rows(
            (8192, 2048, 35.15, 0.23, 0.23, 30.33, 0.27, 0.27),
            (16384, 4096, 31.67, 0.52, 0.52, 30.75, 0.53, 0.53),
            (32768, 8192, 39.56, 0.83, 0.83, 37.44, 0.88, 0.88),
            (65536, 16384, 67.93, 0.96, 0.96, 64.71, 1.01, 1.01),
        ),
        form="wide",
        flags="minBytes 8192 maxBytes 65536 step: 2(factor) warmup iters: 10 iters: 100"
        " agg iters: 1 validation: 1 graph: 0 unalign: 0",
    ),
    PublicTable(  # sizes that are no powers of two
        G + "NVIDIA/nccl/issues/1435",
        _rows(
            (771751936, 192937984, 2786.5, 276.96, 138.48, 2384.8, 323.62, 161.81),
            (788529152, 197132288, 2787.1, 282.92, 141.46, 2427.4, 324.84, 162.42),
            (939524096, 234881024, 3287.6, 285.78, 142.89, 2875.9, 326.69, 163.35),
            redop="none",
            dtype="bfloat16",
        ),
    ),
    PublicTable(  # -c 0 on 256 GPUs
        G + "NVIDIA/nccl-tests/issues/78",
        tuple(
            Line(size, count, (*out, None), (*into, None), root=None)
            for size, count, out, into in (
                (33554432, 8388608, (1464.2, 22.92, 45.65), (1458.1, 23.01, 45.84)),
                (536870912, 134217728, (16129, 33.29, 66.31), (14383, 37.33, 74.36)),
                (1073741824, 268435456, (29896, 35.92, 71.55), (29411, 36.51, 72.73)),
            )
        ),
        form="error",
    ),
    PublicTable(  # wrong data, in a table without redop and root
        G + "NVIDIA/nccl-tests/issues/37",
        _error(
            (4294967296, 134217728, 29122, 129.05, 129.05, 1, 29169, 128.84, 128.84, 1),
            redop=None,
            root=None,
        ),
        form="error",
        footer="2 FAILED",
        finds=("wrong data: nccl-tests on node0 ended with `Out of bounds values : 2 FAILED`",),
    ),
    PublicTable(
        G + "microsoft/NPKit/issues/19",
        _error(
            (8, 2, 40.17, 0, 0, 1e-07, 62.08, 0, 0, 0),
            (16, 4, 32.28, 0, 0, 3e-08, 33.14, 0, 0, 3e-08),
            (32, 8, 32.79, 0, 0, 3e-08, 32.98, 0, 0, 3e-08),
            root=None,
        ),
        form="error",
        flags="minBytes 8 maxBytes 32 step: 2(factor) warmup iters: 5 iters: 20 validation: 1",
    ),
)
