"""The history's schema."""

SCHEMA_VERSION = 6

SCHEMA = """
CREATE TABLE runs (
  run_id TEXT PRIMARY KEY, name TEXT NOT NULL, cluster TEXT NOT NULL, nodes INTEGER NOT NULL,
  on_stop TEXT NOT NULL, status TEXT NOT NULL, exit_code INTEGER, first_failed_rank INTEGER,
  reason TEXT NOT NULL, started TEXT NOT NULL, ended TEXT, cost_usd REAL,
  attempts INTEGER NOT NULL DEFAULT 1, followed TEXT NOT NULL DEFAULT '[]',
  head_id TEXT NOT NULL DEFAULT ''
);
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
);
CREATE TABLE baselines (
  name TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE
);
CREATE TABLE settings (
  run_id TEXT PRIMARY KEY REFERENCES runs (run_id) ON DELETE CASCADE, setting TEXT NOT NULL
)
"""
