"""Reads what the task's file promises, and answers one request on the task's port."""

import http.server
import json
import os
import pathlib
import sys


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers every request with the same words."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a board of losses\n")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


words = pathlib.Path("/tmp/corpus/words").read_text().strip()
settings = json.loads(pathlib.Path("settings.json").read_text())
here = pathlib.Path.cwd() == pathlib.Path(os.environ["GPUCTL_WORKDIR"])
own = sys.prefix.startswith(os.environ["GPUCTL_RUN_FOLDER"])
print(f"rank {os.environ['DSTACK_NODE_RANK']}: {settings}, {words}, {os.environ['HF_TOKEN']},"
      f" Python {sys.version_info.major}.{sys.version_info.minor}, {here}, {own}")  # fmt: skip
if os.environ["DSTACK_NODE_RANK"] == "0":
    with http.server.HTTPServer(("127.0.0.1", 8000), Answer) as server:
        print("serving", flush=True)
        server.handle_request()
