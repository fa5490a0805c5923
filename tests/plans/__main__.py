"""Writes the golden plans again: all, or those of the named types and modes."""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tests.infra.region import CREDENTIALS, client, region
from tests.plans.cases import MODES, TYPES
from tests.plans.life import AT_ONCE, REGION, text_of


def main(names: list[str]) -> None:
    """The golden files are what gpuctl plans now."""
    os.environ |= CREDENTIALS
    cases = [case for case in (*TYPES, *MODES) if not names or case.name in names]
    with tempfile.TemporaryDirectory() as state, region(Path(state)) as here:
        target = replace(here.target, region=REGION)
        ec2 = client(target)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            texts = pool.map(lambda case: text_of(case, target, ec2), cases)
            for case, text in zip(cases, texts, strict=True):
                if not case.golden.exists() or case.golden.read_text() != text:
                    case.golden.write_text(text)
                    sys.stdout.write(f"{case}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
