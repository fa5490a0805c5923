"""`python -m tests.engine.golden`: the golden plans are those of the code as it is."""

import json

from tests.engine.golden import CASES, plan_of, plan_path, text_of

for case, size in CASES:
    plan = json.loads(plan_of(case, size).model_dump_json())
    plan_path(case, size).write_text(text_of(plan))
