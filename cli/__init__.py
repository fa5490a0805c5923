"""The command line: one file per command. The only room that prints and knows exit codes."""

from cli.lazy_modules import import_lazily

import_lazily()
