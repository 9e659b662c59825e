"""Which part of the package may know which: the map, and a walk over all imports.

Bytes (`format`) know of no files, places (`storage`) of no tables, and nobody knows the command
line. A new room needs a line here first.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import floe

PACKAGE = Path(floe.__file__).parent

# A room is a package of Floe, or a module beside them.
MAY_USE: dict[str, set[str]] = {
    "errors": set(),
    "settings": set(),
    "config": {"errors", "settings"},
    "config_files": {"config"},
    "memory": {"config", "errors", "settings"},
    "jvm": {"errors"},
    "session": {"config", "errors"},
    "format": {"config", "errors"},
    "storage": {"errors", "format"},
    "tiers": {"errors", "format", "storage"},
    "checkpoint": {"errors", "format", "storage", "tiers"},
    "engine": {"checkpoint", "config", "errors", "format", "storage", "tiers"},
    "sidecar": {"__init__", "config", "engine", "errors", "format", "memory", "storage"},
    "__init__": {"session"},
    "cli": {"checkpoint", "config", "errors", "format", "jvm", "memory", "session", "settings"},
}
# Libraries that are the business of some rooms only.
HOME_OF: dict[str, set[str]] = {
    "py4j": {"sidecar", "cli"},
    "pyspark": {"session", "cli"},
    "typer": {"cli"},
    "rich": {"cli"},
    "ctypes": {"storage"},
    "mmap": {"storage", "cli"},
    "fcntl": {"storage"},
    "pandas": set(),
}
# What bytes do not need: files, time, processes.
NOT_IN_FORMAT = {"os", "pathlib", "time", "threading", "tempfile", "shutil"}


def imports() -> Iterator[tuple[str, str, str]]:
    """(room, imported module, where) of every import of the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                yield from ((room, alias.name, where) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.module is not None, f"{where}: imports are absolute"
                if node.module == "floe":
                    rooms = (_room_of(alias.name) for alias in node.names)
                    yield from ((room, f"floe.{name}", where) for name in rooms)
                else:
                    yield room, node.module, where


def _room_of(name: str) -> str:
    """`from floe import x` takes a room, or a name that the package itself defines."""
    return name if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file() else "__init__"


def test_every_room_is_on_the_map() -> None:
    assert {room for room, _, _ in imports()} <= set(MAY_USE)


def test_rooms_use_only_what_the_map_allows() -> None:
    strays = []
    for room, module, where in imports():
        first, _, rest = module.partition(".")
        used = rest.partition(".")[0] or "__init__"
        if first == "floe" and used != room and used not in MAY_USE[room]:
            strays.append(f"{where} imports {module}")
    assert not strays


def test_libraries_stay_at_home() -> None:
    strays = [
        f"{where} imports {module}"
        for room, module, where in imports()
        if room not in HOME_OF.get(module.partition(".")[0], {room})
    ]
    assert not strays


def test_formats_know_of_no_files() -> None:
    strays = [
        where
        for room, module, where in imports()
        if room == "format" and module.partition(".")[0] in NOT_IN_FORMAT
    ]
    assert not strays
