"""Compiles the JVM side whenever the Python package is built.

Everything else about the package is declared in pyproject.toml. `pip install .`, `python -m build`
and `pip install -e .` all pass through `build_py`, so this is the one place that has to know that
the package carries jars.
"""

import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIM_BUILD = Path(__file__).resolve().parent / "jvm-shim" / "build.py"


class BuildWithJars(build_py):
    """Compiles into the source tree before package data is collected from there.

    An editable install reads the package in place, a wheel copies it: both find the jars. A failure
    ends the process: an editable install would turn any exception into a warning.
    """

    def run(self) -> None:
        status = subprocess.run([sys.executable, str(SHIM_BUILD)]).returncode
        if status != 0:
            sys.exit(status)
        super().run()


setup(cmdclass={"build_py": BuildWithJars})
