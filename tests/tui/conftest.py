"""A small recorded run: 24 tasks a split, 200 episodes an arm, seed 0, the reference agent."""

import shutil
from pathlib import Path

import pytest

from akv_rsi.insight.run import Run

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture(scope="session")
def recorded():
    """The run, read once; nothing changes it."""
    return Run(RECORDED)


@pytest.fixture
def copy(tmp_path):
    """A copy of its directory, to damage."""
    return Path(shutil.copytree(RECORDED, tmp_path / "copy"))
