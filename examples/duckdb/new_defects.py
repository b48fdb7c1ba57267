"""Defects that are new since a time, with the number of hosts that have them: new_defects.py TABLE SINCE.

TABLE is a Parquet file of defects, or a pattern for several: avtrace report DIR --format parquet=TABLE
Times are in UTC. Exit status: 66 if there are such defects, else 0.
"""

import sys

import duckdb

QUERY = """
    SELECT rule, class, region, subject, left_label, returned_label,
           count(DISTINCT host) AS hosts, count(DISTINCT run) AS reports,
           make_timestamp(epoch_us(min(time)))::VARCHAR AS first_seen
    FROM read_parquet($table, union_by_name = true)
    WHERE class <> 'by-design' AND set_aside_by IS NULL
    GROUP BY fingerprint, rule, class, region, subject, left_label, returned_label
    HAVING epoch_us(min(time)) >= epoch_us($since::TIMESTAMP)
    ORDER BY class, hosts DESC, reports DESC
"""

table, since = sys.argv[1:]
new = duckdb.execute(QUERY, {"table": table, "since": since}).fetchall()
for rule, kind, region, subject, left, returned, hosts, reports, first in new:
    print(f"{rule} {kind}: `{region}` at {left} -> {returned}: {subject}: "
          f"on {hosts} hosts, in {reports} reports, since {first}")
sys.exit(66 if new else 0)
