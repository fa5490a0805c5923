"""Count steps, and write each as a checkpoint: the shape of a training script, without a GPU."""

import json
import os
import time
from pathlib import Path

STEPS = 10
rank = os.environ["GPUCTL_NODE_RANK"]
folder = Path("checkpoints")
folder.mkdir(exist_ok=True)
for step in range(STEPS):
    time.sleep(0.2)
    (folder / f"step-{step}.json").write_text(json.dumps({"rank": rank, "step": step}))
    print(f"step {step} of {STEPS}", flush=True)
