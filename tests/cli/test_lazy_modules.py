"""Modules that a command names are executed when it uses them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_module_is_executed_by_the_first_attribute_that_is_used() -> None:
    assert (
        printed(
            "import sys, cli\n"
            "from operations import release\n"
            "print('provision' in sys.modules)\n"
            "print(release.down.__name__, 'provision' in sys.modules)\n"
        )
        == "False\ndown True\n"
    )


def test_another_thread_executes_what_it_imports_at_once() -> None:
    assert (
        printed(
            "import sys, threading, cli\n"
            "def load():\n"
            "    from operations import release\n"
            "    print('provision' in sys.modules)\n"
            "thread = threading.Thread(target=load)\n"
            "thread.start()\n"
            "thread.join()\n"
        )
        == "True\n"
    )
