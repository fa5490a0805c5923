"""The history's schema, and the upgrades from the schemas of earlier gpuctls.

Version 1 is that of gpuctl 0.1.0: rows without the facts about their tables. Version 2 has neither
baselines nor the settings of runs, version 3 neither attempts nor the failures after the first.
Version 4 does not know the machine of a run's head.
"""

SCHEMA_VERSION = 5

RUNS = """
CREATE TABLE runs (
  run_id TEXT PRIMARY KEY, name TEXT NOT NULL, cluster TEXT NOT NULL, nodes INTEGER NOT NULL,
  on_stop TEXT NOT NULL, status TEXT NOT NULL, exit_code INTEGER, first_failed_rank INTEGER,
  reason TEXT NOT NULL, started TEXT NOT NULL, ended TEXT, cost_usd REAL
)
"""

RESULTS = """
CREATE TABLE tables (
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE, number INTEGER NOT NULL,
  facts TEXT NOT NULL, PRIMARY KEY (run_id, number)
);
CREATE TABLE rows (
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE, in_table INTEGER NOT NULL,
  number INTEGER NOT NULL, size INTEGER NOT NULL, count INTEGER NOT NULL, dtype TEXT NOT NULL,
  redop TEXT, root INTEGER, out_of_place TEXT, in_place TEXT, at TEXT NOT NULL,
  PRIMARY KEY (run_id, in_table, number)
);
CREATE TABLE findings (
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE, number INTEGER NOT NULL,
  kind TEXT NOT NULL, level TEXT NOT NULL, rank INTEGER NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (run_id, number)
)
"""

KEPT = """
CREATE TABLE baselines (
  name TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE
);
CREATE TABLE settings (
  run_id TEXT PRIMARY KEY REFERENCES runs (run_id) ON DELETE CASCADE, setting TEXT NOT NULL
)
"""

_FROM_1 = """
INSERT INTO tables
  SELECT run_id, 0, json_object('rank', min(rank), 'collective', 'nccl-tests')
  FROM rows_1 GROUP BY run_id;
INSERT INTO rows
  SELECT run_id, 0, number, size, count, dtype, redop, root,
    json_object('time_us', time_us, 'algbw', algbw, 'busbw', busbw, 'wrong', wrong), in_place, ''
  FROM rows_1;
DROP TABLE rows_1
"""

_ATTEMPTS = """
ALTER TABLE runs ADD COLUMN attempts INTEGER NOT NULL DEFAULT 1;
ALTER TABLE runs ADD COLUMN followed TEXT NOT NULL DEFAULT '[]'
"""

_HEADS = """
ALTER TABLE runs ADD COLUMN head_id TEXT NOT NULL DEFAULT ''
"""

STEPS = {
    0: f"{RUNS};{RESULTS};{KEPT};{_ATTEMPTS};{_HEADS}",
    1: f"ALTER TABLE rows RENAME TO rows_1;{RESULTS};{_FROM_1};{KEPT};{_ATTEMPTS};{_HEADS}",
    2: f"{KEPT};{_ATTEMPTS};{_HEADS}",
    3: f"{_ATTEMPTS};{_HEADS}",
    4: _HEADS,
}
"""The SQL that upgrades each version to the present schema; 0 is an empty database."""
