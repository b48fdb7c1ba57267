"""Hunts a rare bug on all machines of a Ray cluster: each worker takes a shard, `avtrace merge` makes one report.

    python3 fleet.py --workers 2 --runs 20 -- ./test --its-option
    python3 fleet.py --address auto --workers 16 --results night -- ./test

Without an address the workers are processes of a cluster on this machine. The program, its files and `avtrace` have to
be at the same paths everywhere. The exit status is that of `avtrace merge`: 66 for a defect, 0 for none.
"""

import argparse
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import ray

# A hunt that has results: no failed run, a failed run without a defect, a defect.
HUNTED = (0, 1, 66)


@ray.remote(num_cpus=1)
def hunt(shard, options, program, directory):
    """Hunts one shard. Returns the status and the messages of avtrace, and the file of results as bytes."""
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder) / "results.avth"
        command = ["avtrace", "hunt", "--shard", shard, "--results", str(results)]
        command += ["--output", os.devnull, *options, "--", *program]
        ended = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        found = results.read_bytes() if results.exists() else None
        return ended.returncode, ended.stderr, found


def arguments():
    parser = argparse.ArgumentParser(description="Hunts a rare bug on all machines of a Ray cluster.")
    parser.add_argument("--address", help="cluster, by default one of this machine")
    parser.add_argument("--workers", type=int, default=2, help="number of shards")
    parser.add_argument("--runs", type=int, default=20, help="runs of each shard")
    parser.add_argument("--seed", type=int, default=random.randrange(10**9), help="seed of all choices")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("fleet"), help="folder for the results")
    parser.add_argument("--capture", choices=["auto", "inline", "kernel"], default="auto")
    parser.add_argument("program", nargs="+", help="the program and its arguments, behind `--`")
    return parser.parse_args()


def main():
    options = arguments()
    of_hunt = ["--runs", str(options.runs), "--seed", str(options.seed), "--capture", options.capture]
    if options.address is None:
        ray.init(num_cpus=options.workers, include_dashboard=False, log_to_driver=False)
    else:
        ray.init(address=options.address, log_to_driver=False)
    options.results.mkdir(parents=True, exist_ok=True)
    shards = [f"{index}/{options.workers}" for index in range(1, options.workers + 1)]
    waiting = {hunt.remote(shard, of_hunt, options.program, os.getcwd()): shard for shard in shards}
    files = []
    while waiting:
        [ended], _ = ray.wait(list(waiting), num_returns=1)
        shard = waiting.pop(ended)
        try:
            status, messages, found = ray.get(ended)
        except ray.exceptions.RayError as error:
            # The machine is gone: what the others find is worth as much.
            print(f"shard {shard} is lost: {error}", file=sys.stderr)
            continue
        sys.stderr.write("".join(f"shard {shard}: {line}\n" for line in messages.splitlines()))
        if status not in HUNTED or found is None:
            print(f"shard {shard} failed with status {status}", file=sys.stderr)
            continue
        file = options.results / f"shard-{shard.replace('/', '-of-')}.avth"
        file.write_bytes(found)
        files.append(str(file))
    if not files:
        return 1
    # Of shards that are lost the merged report says nothing; the messages above do.
    return subprocess.run(["avtrace", "merge", *sorted(files)]).returncode


if __name__ == "__main__":
    sys.exit(main())
