"""`python -m tests.config.manifests`: the plans are those of the code as it is."""

from tests.config.manifests import NAMES, plan_path, plan_text

for name in NAMES:
    plan_path(name).write_text(plan_text(name))
