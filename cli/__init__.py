"""The command line: one file per command. The only room that prints and knows exit codes."""
