"""A bare JVM: Spark's and Floe's jars on the class path, but no Spark session.

Benchmarks and tests run state store providers in such a JVM. It starts in a second, and everything
about a store that is not Spark's scheduling can be tried there. Spark's jars are those of the
installed pyspark, Floe's lie beside this package, so it works from a source tree and from a wheel.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from floe.errors import InvalidRequest

__all__ = ["class_path", "command", "find_java", "launch"]

TOOLS_JAR = "floe-tools.jar"

# What Spark's own launcher opens (org.apache.spark.launcher.JavaModuleOptions): rows are read and
# written through internals of the JDK. Flags that a given Java does not know are ignored.
_OPENED_PACKAGES = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_FLAGS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)


def find_java() -> str:
    """The java of JAVA_HOME, else of PATH. Raises InvalidRequest if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if java.exists():
            return str(java)
        raise InvalidRequest(
            f"JAVA_HOME is {home}, but {java} does not exist. Let it point to a Java 17 or newer, "
            "or unset it to use the java of PATH."
        )
    found = shutil.which("java")
    if found is None:
        raise InvalidRequest(
            "No java found. Install a Java 17 or newer and put it on PATH or into JAVA_HOME."
        )
    return found


def class_path() -> str:
    """Spark's jars and Floe's. Raises InvalidRequest if either are missing."""
    # Located, not imported: importing pyspark is slow.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise InvalidRequest(f"No pyspark for {sys.executable}. Install it next to Floe.")
    spark = Path(spec.origin).parent / "jars"
    floe = Path(__file__).resolve().parent / "jars"
    if not (floe / TOOLS_JAR).exists():
        raise InvalidRequest(
            f"Floe's jars are not there: {floe / TOOLS_JAR}. In a source tree run `make jar`; an "
            "installed package without them is broken, so install it again."
        )
    return os.pathsep.join([*map(str, sorted(floe.glob("*.jar"))), str(spark / "*")])


def command(
    main_class: str,
    *arguments: str,
    heap: str = "1g",
    properties: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line that runs a main class in a bare JVM."""
    system = [f"-D{key}={value}" for key, value in (properties or {}).items()]
    return [
        find_java(),
        *_FLAGS,
        f"-Xmx{heap}",
        *system,
        "-cp",
        class_path(),
        main_class,
        *arguments,
    ]


def launch(
    main_class: str,
    *arguments: str,
    heap: str = "1g",
    properties: Mapping[str, str] | None = None,
    stderr: int | None = None,
) -> subprocess.Popen[str]:
    """A running bare JVM; its standard input and output are pipes of text.

    What the JVM starts in turn finds this Python, unless PYSPARK_PYTHON names another, and finds
    this very package, installed or not.
    """
    package_root = str(Path(__file__).resolve().parent.parent)
    python_path = os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        command(main_class, *arguments, heap=heap, properties=properties),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={"PYSPARK_PYTHON": sys.executable, **os.environ, "PYTHONPATH": python_path},
    )
