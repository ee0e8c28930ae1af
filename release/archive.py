"""The second auditor with its interpreter as one file, for people who install nothing.

PyInstaller packs them; the file unpacks itself into a temporary folder when it runs. It is tried in a folder
that is the root of its file system and holds the C library and zlib alone: no Python, no shell.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from release.sample import RUN, SESSION, try_auditor, write_sample
from release.unpacked import BESIDE
from release.wheel import ROOT, install_locked, needed

LOCK = ROOT / "requirements" / "release.lock"
NAME = "smpc-dp-verify"
# What is in the archive beside Python's own modules: packages, and the distributions that they are of.
PACKAGES = {
    "smpc_dp_verify": NAME,
    "Crypto": "pycryptodome",
    "cryptography": "cryptography",
    "msgspec": "msgspec",
    "cffi": "cffi",
    "_cffi_backend": "cffi",
    "pycparser": "pycparser",
    # PyInstaller's own, which start the program.
    "_pyi_rth_utils": "pyinstaller",
}
# Libraries of the system that Python's modules link, and texts that their licences refer to.
LIBRARIES = {"libffi": (), "libgcc_s": ("GPL-3",), "libz": ()}
# The C library, which every program for it finds, and zlib, which PyInstaller's bootloader needs.
SYSTEM = (
    *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"),
    "libz.so.1",
)
# Modules that would bring further libraries, of which the auditor needs none.
EXCLUDED = (
    *("_bz2", "_curses", "_dbm", "_hashlib", "_lzma", "_sqlite3", "_ssl", "_tkinter", "_uuid", "readline"),
    *("asyncio", "distutils", "pkg_resources", "pydoc", "setuptools", "ssl", "unittest", "xmlrpc"),
)
# What PyInstaller makes the program of.
ENTRY = ROOT / "release" / "unpacked.py"
README = """smpc-dp-verify {version} audits logs and signed results of smpc-dp. It needs Linux, the C library
(glibc) that its name says and zlib, and no Python.

Try it in this folder, where PROGRAM is the file that wrote it:

  PROGRAM sample/log.jsonl --session {session} --run {run}
  PROGRAM sample/tampered.jsonl --session {session} --run {run}

The first ends with "Everything holds." in its first line, and exit code 0. In the second log one character
differs: it begins with "This log does not hold: line", and has exit code 1.

bill.cdx.json lists what is in the program, licenses/ has the licences. docs/guides/data-protection.md of
smpc-dp says what a verdict means, verify/README.md what is checked, and exit codes.
"""


def build(folder: Path, bill: Path, version: str, out: Path, *, twice: bool) -> Path:
    """Return the archive, built from the environment of the installed auditor, and write its bill.

    Args:
        folder: the environment.
        bill: that of the auditor's packages.
        version: the auditor's.
        out: the folder for the archive and its bill.
        twice: whether to build it again, and refuse it unless both are the same.
    """
    python = str(folder / "bin" / "python")
    listed = folder / "pyinstaller.txt"
    listed.write_text(needed(LOCK.read_text("utf-8"), {"pyinstaller"}), "utf-8")
    install_locked(folder, listed)
    beside = folder / BESIDE
    write_sample(beside / "sample")
    components = write_licenses(beside / "licenses", installed(folder))
    whole = json.loads(bill.read_text("utf-8"))
    whole["components"] = [*whole["components"], *components]
    text = json.dumps(whole, indent=2) + "\n"
    (out / f"{NAME}.archive.cdx.json").write_text(text, "utf-8")
    (beside / "bill.cdx.json").write_text(text, "utf-8")
    (beside / "README.txt").write_text(README.format(version=version, session=SESSION, run=RUN), "utf-8")
    first, *others = (pack(python, beside, folder / name) for name in ("first", "second")[: 1 + twice])
    if any(first.read_bytes() != second.read_bytes() for second in others):
        sys.exit(f"{first.name}: two builds differ")
    found = contents(first)
    check_contents(found, [str(ROOT), str(folder)])
    name = f"{NAME}-{version}-manylinux_2_{glibc_of(found.values())}_{platform.machine()}"
    print(f"{name}: {len(found)} files and modules{', the same in two builds' if twice else ''}")
    return Path(shutil.copy(first, out / name))


def installed(folder: Path) -> dict[str, Distribution]:
    """Return the distributions of an environment whose files are in the archive."""
    place = sysconfig.get_path("purelib", vars={"base": str(folder)})
    found = {one.metadata["Name"].lower(): one for one in distributions(path=[place])}
    return {name: found[name] for name in sorted(set(PACKAGES.values()))}


def pack(python: str, beside: Path, folder: Path) -> Path:
    """Return the file that PyInstaller makes."""
    command = [python, "-m", "PyInstaller", "--onefile", "--noconfirm", "--log-level", "WARN", "--name", NAME]
    for option in ("dist", "work", "spec"):
        command += [f"--{option}path", str(folder / option)]
    for module in EXCLUDED:
        command += ["--exclude-module", module]
    command += ["--add-data", f"{beside}{os.pathsep}{BESIDE}", str(ENTRY)]
    # PyInstaller runs tools of the system, such as objcopy. Without a seed the order of its tables differs.
    own = {
        **os.environ,
        "PYTHONHASHSEED": "1",
        "PYINSTALLER_CONFIG_DIR": str(folder),
        "SOURCE_DATE_EPOCH": "0",
    }
    folder.mkdir()
    subprocess.run(command, cwd=folder, env=own, check=True)
    return folder / "dist" / NAME


def write_licenses(folder: Path, packages: Mapping[str, Distribution]) -> list[dict[str, Any]]:
    """Write the licences of all that the archive holds; return as components of a bill what is no package."""
    for name, one in packages.items():
        files = [
            file
            for file in one.files or ()
            if re.search(r"\.dist-info/(?:licenses/|sboms/|LICEN)", str(file))
        ]
        if not files:
            sys.exit(f"{name} {one.version} has no licence in its wheel")
        for file in files:
            _copy(Path(str(file.locate())), folder / name)
    python = platform.python_version()
    _copy(Path(sysconfig.get_path("stdlib"), "LICENSE.txt"), folder / "cpython")
    components = [
        component("application", "cpython", python, f"pkg:generic/cpython@{python}"),
        component(
            "application",
            "pyinstaller",
            (own := packages["pyinstaller"].version),
            f"pkg:pypi/pyinstaller@{own}",
        ),
    ]
    for library, texts in LIBRARIES.items():
        package, version, purl = debian_package(library)
        components.append(component("library", package, version, purl))
        _copy(Path("/usr/share/doc") / package / "copyright", folder / package)
        for text in texts:
            _copy(Path("/usr/share/common-licenses") / text, folder / package)
    return components


def component(kind: str, name: str, version: str, purl: str) -> dict[str, Any]:
    """Return a component of a bill in CycloneDX."""
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}


def debian_package(library: str) -> tuple[str, str, str]:
    """Return name, version and address of the package of the system that a library is of."""
    arch = subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    ).stdout.strip()
    query = ["dpkg-query", "--search", f"*/{library}.so.*"]
    listed = subprocess.run(query, check=True, capture_output=True, text=True).stdout
    package = min(re.findall(rf"^(\S+):{arch}: ", listed, re.MULTILINE))
    query = ["dpkg-query", "--show", "--showformat", "${Version}", f"{package}:{arch}"]
    version = subprocess.run(query, check=True, capture_output=True, text=True).stdout
    return (
        package,
        version,
        f"pkg:deb/{platform.freedesktop_os_release()['ID']}/{package}@{version}?arch={arch}",
    )


def _copy(file: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, folder)


def contents(archive: Path) -> dict[str, bytes]:
    """Return all that an archive unpacks, by path, and all that it imports, by `modules/NAME`."""
    # Of the release's own environment, which tests of this module do without.
    from PyInstaller.archive.readers import CArchiveReader

    reader = CArchiveReader(str(archive))
    found: dict[str, bytes] = {}
    for name in reader.toc:
        if name.endswith(".pyz"):
            inner = reader.open_embedded_archive(name)
            found |= {f"modules/{module}": inner.extract(module, raw=True) or b"" for module in inner.toc}
        else:
            found[name] = reader.extract(name) or b""
    return found


def check_contents(found: Mapping[str, bytes], folders: Collection[str]) -> None:
    """Exit with a message if the archive holds a foreign module or library, or names where it was built."""
    dynamic = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    known = {*sys.stdlib_module_names, *PACKAGES}
    for name, content in found.items():
        top, _, inner = name.partition("/")
        if top == "modules":
            right = inner.partition(".")[0] in known or inner.startswith("_sysconfigdata_")
        elif ".so" in Path(name).suffixes:
            right = (
                top.partition(".")[0] in {*LIBRARIES, *PACKAGES, f"lib{dynamic.partition('.')[0]}"}
                or top == dynamic
            )
        else:
            # Other files of a package, what the interpreter starts with, and what starts the program.
            package = top.removesuffix(".dist-info").rpartition("-")[0]
            starts = top in {"base_library.zip", "struct", ENTRY.stem} or top.startswith("pyi")
            right = starts or bool({top, package} & {BESIDE, dynamic, *PACKAGES})
        if not right:
            sys.exit(f"the archive holds {name}, which the auditor does not need")
        for folder in folders:
            if folder.encode() in content:
                sys.exit(f"the archive names a folder that it was built in: {folder}, in {name}")
    lacks = {"smpc_dp_verify", "Crypto", "cryptography", "msgspec"} - {
        name.removeprefix("modules/").partition(".")[0] for name in found
    }
    if lacks:
        sys.exit(f"the archive lacks {', '.join(sorted(lacks))}")


def glibc_of(contents: Iterable[bytes]) -> int:
    """Return the newest version 2.x of the C library that a compiled part asks for."""
    return max(
        int(minor) for content in contents for minor in re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", content)
    )


def try_archive(archive: Path, root: Path) -> None:
    """Run the archive where there is no Python: in a root folder with C library and zlib."""
    maps = Path("/proc/self/maps").read_text("utf-8")
    loader = re.search(rb"/lib\w*/ld-linux[\w.-]*", archive.read_bytes()[: 1 << 16])
    libraries = re.search(r"\S+(?=/libc\.so\.6$)", maps, re.MULTILINE)
    if loader is None or libraries is None:
        sys.exit(f"{archive.name}: not a program for glibc, or this Python is none")
    _copy(Path(loader[0].decode()), root / Path(loader[0].decode()).parent.relative_to("/"))
    for name in SYSTEM:
        _copy(Path(libraries[0], name), root / libraries[0].lstrip("/"))
    for folder in ("tmp", "dev/shm"):
        (root / folder).mkdir(parents=True)
    _copy(archive, root)
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    # By its path: the environment of what it runs has none.
    unshare = shutil.which("unshare") or sys.exit("missing: unshare (Debian: apt install util-linux)")
    command = [unshare, *as_root, "--root", str(root), "--wd", "/", f"/{archive.name}"]
    nothing = {"PATH": "/nonexistent"}
    done = subprocess.run([*command, "--unpack", "/out"], env=nothing, capture_output=True, text=True)
    if done.returncode or not (root / "out" / "README.txt").exists():
        sys.exit(f"{archive.name} does not unpack without Python: {done.stdout}{done.stderr}")
    print(f"{archive.name}: in a root folder with {len([*root.rglob('*.so*')])} files: C library and zlib")
    try_auditor(command, "/out/sample", nothing, root)
