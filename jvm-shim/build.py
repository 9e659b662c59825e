"""Compiles the Scala sources of Floe into jars, with nothing but Java and pyspark.

pyspark ships the Scala compiler among its jars (Spark needs it for its shell), and the sources
compile against those same jars. So there is no sbt, no Maven, and no version of Scala to choose:
the one Spark runs with is the one that compiles.

    part   sources                   jar                  compiled against
    main   src/main/{scala,resources}   floe-spark-4.3.jar   Spark's jars
    tools  src/tools/{scala,resources}  floe-tools.jar       Spark's jars and the jar of main

`main` is the product. `tools` holds what benchmarks and tests run inside a JVM; a tree without it
is fine. A jar is deterministic: the same sources give the same bytes. Its manifest holds a
fingerprint of everything that went in (sources, flags, Spark's version, the jar it was compiled
against), and a jar whose fingerprint still matches is left alone.

    python jvm-shim/build.py [--out DIR] [--spark-home DIR] [--force]

Only the standard library is used: this file runs inside package builds, before anything of Floe is
installed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEFAULT_OUT = HERE.parent / "python" / "floe" / "jars"

# The shim is written against one minor version of Spark: its provider traits change in each.
SPARK_MINOR = "4.3"
JAVA_MINIMUM = 17

# Enough for scalac on these sources, and small enough for a build container.
JVM_FLAGS = ("-Xmx1g", "-Xss4m", "-XX:+UseSerialGC")
SCALAC_FLAGS = ("-deprecation", "-feature", "-unchecked", "-Xlint", "-encoding", "UTF-8")

# Zip entries carry a time; this is the earliest that the format can express.
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
MANIFEST = "META-INF/MANIFEST.MF"
FINGERPRINT_KEY = "Floe-Fingerprint"


class BuildError(Exception):
    """The build cannot go on; the message says what to do about it."""


@dataclass(frozen=True)
class Part:
    """One source tree and the jar made of it."""

    name: str
    jar: str

    @property
    def root(self) -> Path:
        return HERE / "src" / self.name

    def sources(self) -> list[Path]:
        return sorted((self.root / "scala").rglob("*.scala"))

    def resources(self) -> dict[str, Path]:
        base = self.root / "resources"
        return {p.relative_to(base).as_posix(): p for p in base.rglob("*") if p.is_file()}


MAIN = Part("main", f"floe-spark-{SPARK_MINOR}.jar")
TOOLS = Part("tools", "floe-tools.jar")


@dataclass(frozen=True)
class Java:
    """A Java that is new enough to compile and run the shim."""

    executable: str
    feature_version: int
    home: Path

    def platform_flags(self) -> tuple[str, ...]:
        """Flags that make class files for Java 17.

        A newer Java holds the older platform's signatures in ct.sym, which comes with a JDK only.
        A plain runtime still compiles, against its own platform.
        """
        if self.feature_version == JAVA_MINIMUM or (self.home / "lib" / "ct.sym").exists():
            return ("-release", str(JAVA_MINIMUM))
        return (f"-target:{JAVA_MINIMUM}",)


def find_java() -> Java:
    """The Java of JAVA_HOME, else of PATH.

    Raises BuildError when there is none, or only one that is too old.
    """
    java_home = os.environ.get("JAVA_HOME")
    if java_home:
        executable = str(Path(java_home) / "bin" / "java")
        found_by = f"JAVA_HOME={java_home}"
    else:
        executable = shutil.which("java") or ""
        found_by = "PATH"
    remedy = (
        f"Install a JDK {JAVA_MINIMUM} or newer (Debian and Ubuntu: apt install "
        f"openjdk-{JAVA_MINIMUM}-jdk-headless; macOS: brew install openjdk@{JAVA_MINIMUM}) "
        "and let JAVA_HOME point to it."
    )
    if not executable or not Path(executable).exists():
        raise BuildError(f"No java found by {found_by}. {remedy}")
    settings = subprocess.run(
        [executable, "-XshowSettings:properties", "-version"], capture_output=True, text=True
    ).stderr
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", settings)
    home = re.search(r"java\.home = (.+)", settings)
    if version is None or home is None:
        raise BuildError(f"{executable} (found by {found_by}) does not say its version. {remedy}")
    feature_version = int(version[1])
    if feature_version < JAVA_MINIMUM:
        raise BuildError(
            f"{executable} (found by {found_by}) is Java {feature_version}; "
            f"Spark {SPARK_MINOR} and Floe need {JAVA_MINIMUM}. {remedy}"
        )
    return Java(executable, feature_version, Path(home[1].strip()))


def find_spark_jars(spark_home: Path | None) -> Path:
    """The directory of Spark's jars: of `spark_home`, else of the installed pyspark.

    pyspark is located, not imported: importing it is slow and needs its dependencies.
    """
    if spark_home is not None:
        jars = spark_home / "jars"
    else:
        spec = importlib.util.find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise BuildError(
                f"No pyspark for {sys.executable}. Install pyspark {SPARK_MINOR}, "
                "or name a Spark distribution with --spark-home."
            )
        jars = Path(spec.origin).parent / "jars"
    version = spark_version(jars)
    if not version.startswith(f"{SPARK_MINOR}."):
        raise BuildError(f"{jars} holds Spark {version}; this shim is for Spark {SPARK_MINOR}.")
    return jars


def spark_version(jars: Path) -> str:
    """The version in the name of Spark's SQL jar: the jar that the shim leans on."""
    for jar in jars.glob("spark-sql_2.13-*.jar"):
        return jar.stem.removeprefix("spark-sql_2.13-")
    raise BuildError(f"{jars} holds no spark-sql_2.13 jar; it is not a Spark {SPARK_MINOR}.")


def fingerprint(part: Part, spark_jars: Path, extra_jars: list[Path]) -> str:
    """Changes when the jar of this part would."""
    digest = hashlib.sha256()
    digest.update(repr((SCALAC_FLAGS, JAVA_MINIMUM, spark_version(spark_jars))).encode())
    inputs = {p.relative_to(part.root).as_posix(): p for p in part.sources()}
    inputs |= {f"resources/{name}": p for name, p in part.resources().items()}
    inputs |= {f"jars/{jar.name}": jar for jar in extra_jars}
    for name, path in sorted(inputs.items()):
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    # A manifest line may not exceed 72 bytes.
    return digest.hexdigest()[:40]


def is_current(jar: Path, wanted: str) -> bool:
    """Whether the jar exists, is whole, and was made of these inputs."""
    try:
        with zipfile.ZipFile(jar) as archive:
            lines = archive.read(MANIFEST).decode().splitlines()
    except (FileNotFoundError, KeyError, zipfile.BadZipFile):
        return False
    return f"{FINGERPRINT_KEY}: {wanted}" in lines


def run_scalac(
    part: Part, java: Java, spark_jars: Path, extra_jars: list[Path], classes: Path
) -> None:
    """Class files of the part, under `classes`. Warnings go to the terminal as they come."""
    class_path = os.pathsep.join([str(spark_jars / "*"), *map(str, extra_jars)])
    command = [java.executable, *JVM_FLAGS, "-cp", class_path, "scala.tools.nsc.Main"]
    command += ["-usejavacp", *java.platform_flags(), *SCALAC_FLAGS, "-d", str(classes)]
    command += map(str, part.sources())
    if subprocess.run(command).returncode != 0:
        raise BuildError(f"The sources of {part.jar} do not compile; see the messages above.")


def write_jar(jar: Path, part: Part, classes: Path, stamp: str) -> None:
    """A jar of the class files and resources, moved into place whole.

    Sorted names, a fixed time and fixed permissions make it a function of its contents.
    """
    entries = {p.relative_to(classes).as_posix(): p for p in classes.rglob("*") if p.is_file()}
    entries |= part.resources()
    manifest = f"Manifest-Version: 1.0\r\nCreated-By: Floe\r\n{FINGERPRINT_KEY}: {stamp}\r\n\r\n"
    jar.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=jar.parent, prefix=f".{jar.name}.")
    try:
        with os.fdopen(handle, "wb") as out, zipfile.ZipFile(out, "w") as archive:
            add(archive, MANIFEST, manifest.encode())
            for name, path in sorted(entries.items()):
                add(archive, name, path.read_bytes())
        os.chmod(temporary, 0o644)
        os.replace(temporary, jar)
    except BaseException:
        os.unlink(temporary)
        raise


def add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, ZIP_EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    archive.writestr(info, content)


def build_part(
    part: Part, out: Path, spark_jars: Path, extra_jars: list[Path], force: bool
) -> Path:
    """The jar of one part, compiled only if its inputs changed."""
    jar = out / part.jar
    stamp = fingerprint(part, spark_jars, extra_jars)
    if not force and is_current(jar, stamp):
        print(f"{part.jar}: up to date", flush=True)
        return jar
    java = find_java()
    print(f"{part.jar}: compiling {len(part.sources())} Scala files ...", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="floe-classes-") as classes:
        run_scalac(part, java, spark_jars, extra_jars, Path(classes))
        write_jar(jar, part, Path(classes), stamp)
    print(f"{part.jar}: built in {time.monotonic() - started:.1f} s", flush=True)
    return jar


def build(out: Path = DEFAULT_OUT, spark_home: Path | None = None, force: bool = False) -> None:
    """Both jars under `out`, each compiled only if its inputs changed.

    Raises BuildError with the remedy when Java, Spark or the sources stand in the way.
    """
    if not MAIN.sources():
        raise BuildError(f"No Scala sources under {MAIN.root}: the source tree is incomplete.")
    spark_jars = find_spark_jars(spark_home)
    main_jar = build_part(MAIN, out, spark_jars, [], force)
    if TOOLS.sources():
        build_part(TOOLS, out, spark_jars, [main_jar], force)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile Floe's Scala sources into jars.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="where the jars go")
    parser.add_argument("--spark-home", type=Path, help="a Spark distribution, instead of pyspark")
    parser.add_argument("--force", action="store_true", help="compile even if nothing changed")
    arguments = parser.parse_args()
    try:
        build(arguments.out, arguments.spark_home, arguments.force)
    except BuildError as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
