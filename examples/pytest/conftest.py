"""Programs that tests call run under what AVTRACE_RUN says: `AVTRACE_RUN="avtrace run --" pytest`."""

import os
import shlex
import subprocess

import pytest


@pytest.fixture
def run():
    """Runs a program, under avtrace where AVTRACE_RUN is set; a defect fails the test as a failed command does."""
    wrapper = shlex.split(os.environ.get("AVTRACE_RUN", ""))

    def run_program(*command):
        ended = subprocess.run([*wrapper, *command], stdout=subprocess.PIPE, text=True)
        assert ended.returncode == 0, f"`{shlex.join(command)}` ended with status {ended.returncode}"
        return ended.stdout

    return run_program
