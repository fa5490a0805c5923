"""One module a command: parse the line, call an operation, render what it returns."""
