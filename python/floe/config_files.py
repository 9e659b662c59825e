"""The files that are written from the table of settings, so that they cannot drift from it.

python -m floe.config_files      rewrites them in a source tree; a test compares

conf/floe-defaults.conf   every key, commented out, in the format of spark-defaults.conf
docs/configuration.md     the same as a page to read
"""

import textwrap
from pathlib import Path

from floe.config import PREFIX, Setting, settings

__all__ = ["render_defaults", "render_documentation", "rendered"]

_DEFAULTS_HEAD = """\
# Every setting of Floe with its default. Copy what you want to change into spark-defaults.conf, or
# pass it with --conf. Rendered from python/floe/config.py; edit it there.
"""

_DOCUMENTATION_HEAD = f"""\
# Configuration

Every setting of Floe is a Spark configuration key under `{PREFIX}`.
Set it where you set the others: `--conf`, `spark-defaults.conf`, or the session's builder. A key
that does not exist and a value out of range are errors that name the key. Sizes are written as in
Spark: `64k`, `512m`, `4g`, or bytes.

One key is enough for most uses: `{PREFIX}memory`. `floe conf`
prints the lines that switch Floe on, and `floe doctor` checks them against the machine.

This page is rendered from `python/floe/config.py`, as is `conf/floe-defaults.conf`.

"""


def render_defaults() -> str:
    return _DEFAULTS_HEAD + "".join(map(_defaults_entry, settings()))


def _defaults_entry(row: Setting) -> str:
    facts = f"Allowed: {row.kind.allowed}."
    if row.kind.unit:
        facts += f" Unit: {row.kind.unit}."
    lines = textwrap.wrap(row.doc, 98) + textwrap.wrap(facts, 98)
    comment = "".join(f"# {line}\n" for line in lines)
    return f"\n{comment}#{row.key} {row.default}".rstrip() + "\n"


def render_documentation() -> str:
    table = ["| key | default | allowed | unit |", "|---|---|---|---|"]
    for row in settings():
        default = f"`{row.default}`" if row.default else "empty"
        allowed = row.kind.allowed.replace("|", "\\|")
        link = f"[`{row.suffix}`](#{_anchor(row)})"
        table.append(f"| {link} | {default} | {allowed} | {row.kind.unit} |")
    return _DOCUMENTATION_HEAD + "\n".join(table) + "\n" + "".join(map(_section, settings()))


def _section(row: Setting) -> str:
    paragraph = "\n".join(textwrap.wrap(row.doc, 100))
    return f"\n## {row.suffix}\n\n`{row.key}`\n\n{paragraph}\n"


def _anchor(row: Setting) -> str:
    """The anchor that a Markdown heading of this suffix gets: lower case, no punctuation."""
    return row.suffix.lower().replace(".", "")


def rendered() -> dict[str, str]:
    """Contents by path, relative to the root of the source tree."""
    return {
        "conf/floe-defaults.conf": render_defaults(),
        "docs/configuration.md": render_documentation(),
    }


def main() -> None:
    root = Path(__file__).resolve().parents[2]
    for name, content in rendered().items():
        (root / name).write_text(content, encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
