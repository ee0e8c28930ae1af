"""Executes the notebooks and writes what they show as Markdown, for the site: `make notebooks`."""

from __future__ import annotations

import argparse
import asyncio
import re
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jupytext
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

from docs.site.pages import EXECUTED, NOTEBOOKS, ROOT

# Of each notebook: seconds of processor time, which other load does not change, and until it counts as stuck.
MOST_CELLS, MOST_SECONDS, STUCK = 12, 60, 600
LAST = "## What was protected, and what was not"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PROTECTED = ("**What was protected.**", "**What was not.**")


class Unfit(Exception):
    """A notebook that must not be shown, and why."""


def processor_seconds() -> float:
    """Return the processor time of all kernels that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check_form(cells: Sequence[Any]) -> None:
    """Raise Unfit for too many cells, or a last one that does not say what was protected and what was not."""
    if len(cells) > MOST_CELLS:
        raise Unfit(f"has {len(cells)} cells, at most are {MOST_CELLS}")
    last = cells[-1].source if cells else ""
    if not (last.startswith(LAST) and all(part in last for part in PROTECTED)):
        raise Unfit(f"the last cell does not begin with {LAST!r}, or lacks one of {', '.join(PROTECTED)}")


def execute(source: Path) -> str:
    """Return a notebook, executed in the root of the checkout, as Markdown; raise Unfit."""
    notebook = jupytext.read(source)
    check_form(notebook.cells)
    begun, used = time.monotonic(), processor_seconds()
    with tempfile.TemporaryDirectory() as folder:
        # Sockets in a folder of their own, not ports, which would be open to other users.
        transport = {"transport": "ipc", "ip": f"{folder}/kernel"}
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            resources={"metadata": {"path": str(ROOT)}},
            config=Config({"KernelManager": transport}),
        )
        try:
            asyncio.run(asyncio.wait_for(client.async_execute(), STUCK))
        except TimeoutError:
            raise Unfit(f"has not ended after {STUCK} seconds") from None
        except CellExecutionError as error:
            raise Unfit(f"a cell fails:\n{COLOUR.sub('', str(error))}") from None
    used = processor_seconds() - used
    if used > MOST_SECONDS:
        raise Unfit(f"takes {used:.0f} seconds of processor time, at most are {MOST_SECONDS}")
    print(f"{source.name}: {time.monotonic() - begun:.1f} s, of processor time {used:.1f} s", file=sys.stderr)
    return "\n\n".join(block for cell in notebook.cells for block in _blocks(cell)) + "\n"


def _blocks(cell: Any) -> Iterator[str]:
    """Yield a cell and its outputs as Markdown."""
    if cell.cell_type != "code":
        yield cell.source
        return
    yield fenced("python", cell.source)
    for output in cell.outputs:
        match output.output_type:
            case "stream" if output.name == "stdout":
                yield fenced("{code-block} text\n:class: output", output.text)
            case "stream":
                raise Unfit(f"a cell writes to stderr:\n{output.text}")
            case "display_data" | "execute_result":
                yield shown(output.data, cell.metadata)


def shown(data: Mapping[str, str], metadata: Mapping[str, str]) -> str:
    """Return what a cell shows; raise Unfit for a picture without a text in `alt` of the cell's metadata."""
    if "text/html" in data:
        return fenced("{raw} html", data["text/html"])
    if "image/png" in data:
        if not metadata.get("alt"):
            raise Unfit("a picture has no text: write `:alt: ...` below the head of its cell")
        image = "".join(data["image/png"].split())
        alt = metadata["alt"].replace("&", "&amp;").replace('"', "&quot;")
        return fenced("{raw} html", f'<img class="output" alt="{alt}" src="data:image/png;base64,{image}">')
    return fenced("{code-block} text\n:class: output", data["text/plain"])


def fenced(info: str, text: str) -> str:
    """Return a block of Markdown, whose fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{info}\n{text.rstrip()}\n{fence}"


def main() -> int:
    """Execute notebooks and write their pages into a folder; return 1 if one must not be shown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", type=Path, nargs="*", help=f"by default those in {NOTEBOOKS}")
    parser.add_argument("--out", type=Path, default=ROOT / EXECUTED, help="the folder for the pages")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for source in given.notebooks or sorted((ROOT / NOTEBOOKS).glob("*.md")):
        try:
            page = execute(source)
        except Unfit as error:
            print(f"{source.name}: {error}", file=sys.stderr)
            return 1
        (given.out / source.name).write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
