"""Checks all traces below a directory with Ray, and merges their reports: check_all.py TRACES REPORTS.

REPORTS is a directory that gets a report for each trace. On a cluster both have to be on storage that all nodes have.
"""

import os
import pathlib
import subprocess
import sys

import ray

AVTRACE = os.environ.get("AVTRACE", "avtrace")


@ray.remote
def check(trace, report):
    """Checks a trace. Returns the exit status of avtrace: 0, 66 for defects, 3 for what is no trace."""
    command = [AVTRACE, "check", "--no-config", "--format", f"json={report}", str(trace)]
    return subprocess.run(command, stdout=subprocess.DEVNULL).returncode


traces, reports = map(pathlib.Path, sys.argv[1:])
reports.mkdir(parents=True, exist_ok=True)
ray.init(include_dashboard=False, log_to_driver=False)
found = sorted(traces.rglob("*.avt"))
names = ["_".join(trace.relative_to(traces).parts) for trace in found]
statuses = ray.get([check.remote(trace.resolve(), (reports / f"{name}.json").resolve())
                    for trace, name in zip(found, names)])
for trace, status in zip(found, statuses):
    if status not in (0, 66):
        print(f"{trace}: avtrace ended with status {status}", file=sys.stderr)
merged = subprocess.run([AVTRACE, "merge", "--no-config", reports]).returncode
sys.exit(merged or next((status for status in statuses if status not in (0, 66)), 0))
