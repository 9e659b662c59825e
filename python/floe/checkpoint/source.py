"""Where a load finds the durable files of a store.

On `file:` that is the store's own directory. Elsewhere the shim fetches files into a scratch
directory: whatever is missing there is asked for with `NeedFiles`, the shim brings it and asks the
same question again. The shim understands none of it.
"""

from dataclasses import dataclass
from pathlib import Path

from floe.errors import Corrupt
from floe.storage import paths
from floe.storage.paths import Named

__all__ = ["FileSource", "NeedFiles"]


class NeedFiles(Exception):
    """These files must be fetched into the scratch directory first."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"fetch {', '.join(names)}")
        self.names = names


@dataclass(frozen=True, slots=True)
class FileSource:
    """A directory with durable files; `listing` is the whole list when only some are fetched."""

    directory: Path
    listing: frozenset[str] | None = None
    origin: str = ""  # where the files really lie, for messages; the directory unless fetched

    def shown(self, name: str = "") -> str:
        """A file, or the directory, as a user would name it."""
        base = self.origin or str(self.directory)
        return f"{base}/{name}" if name else base

    def names(self) -> list[Named]:
        if self.listing is not None:
            found: frozenset[str] | list[str] = self.listing
        else:
            found = [p.name for p in self.directory.iterdir()] if self.directory.is_dir() else []
        return [named for name in found if (named := paths.parse(name)) is not None]

    def has_strangers(self) -> bool:
        """Whether files are there that other state stores write."""
        if self.listing is not None:
            found = set(self.listing)
        else:
            found = {p.name for p in self.directory.iterdir()} if self.directory.is_dir() else set()
        return any(name.endswith((".zip", ".changelog", ".snapshot")) for name in found)

    def exists(self, name: str) -> bool:
        if self.listing is not None:
            return name in self.listing
        return (self.directory / name).is_file()

    def require(self, names: list[str]) -> None:
        """Makes sure that all of `names` can be read."""
        if self.listing is not None:
            missing = [n for n in names if n in self.listing and not (self.directory / n).is_file()]
            if missing:
                raise NeedFiles(missing)

    def path(self, name: str) -> Path:
        self.require([name])
        path = self.directory / name
        if not path.is_file():
            raise Corrupt(f"{self.shown(name)} is missing", path=self.shown(name))
        return path

    def read(self, name: str) -> bytes:
        return self.path(name).read_bytes()
