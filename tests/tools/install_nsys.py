"""Unpack a real Nsight Systems command line below a folder, for the tests that profile a program with it.

    python tests/tools/install_nsys.py CACHE_FOLDER

Prints the path of ``nsys``. Nothing is installed into the system: Debian's packages are downloaded with a private apt
configuration (the mirror is the one this machine already uses), unpacked with ``dpkg-deb -x`` and laid out the way
the programs expect each other. Running it again only prints the path. The last line on stderr says why where it
cannot be done (no apt, no network, another architecture).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SUITE = "trixie"
PACKAGES = ("nsight-systems", "nsight-systems-target")
LIBRARIES = ("libssh-4", "libpfm4", "libelf1t64")
NVTX = "nvtx==0.2.11"  # from 0.2.12 on, ranges pushed from Python are lost under this nsys
_DONE = "complete"


class InstallError(Exception):
    """Why no nsys can be unpacked here."""


def install(cache: Path) -> Path:
    """Unpack nsys below a folder, unless it is there already.

    Args:
        cache: Folder of its own; about 1.5 GB are needed.

    Returns:
        Path of the ``nsys`` program.

    Raises:
        InstallError: A tool, the network or a package is missing.
    """
    cache = cache.resolve()
    root = cache / "root"
    program = root / "bin" / "nsys"
    if (cache / _DONE).exists():
        return program
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise InstallError(f"{tool} is not on this machine")
    shutil.rmtree(root, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    debs = _download(cache)
    unpacked = cache / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    for deb in debs:
        _run("dpkg-deb", "-x", str(deb), str(unpacked))
    _lay_out(unpacked, root)
    _run(str(program), "--version")
    for deb in debs:
        deb.unlink()
    shutil.rmtree(unpacked)
    (cache / _DONE).write_text(hashlib.sha256(program.read_bytes()).hexdigest())
    return program


def install_nvtx(cache: Path) -> Path:
    """Put the last nvtx module whose ranges this nsys records into a folder of its own; returns the folder.

    Raises:
        InstallError: pip cannot fetch it.
    """
    folder = cache.resolve() / "nvtx"
    if not (folder / "nvtx").is_dir():
        _run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), NVTX)
    return folder


def _download(cache: Path) -> list[Path]:
    """Fetch the packages with apt's own state kept below the cache folder."""
    state = cache / "apt"
    for folder in ("lists/partial", "archives/partial", "etc"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    sources = state / "etc" / "sources.list"
    signed = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    sources.write_text(f"deb {signed} {_mirror()} {SUITE} main contrib non-free\n")
    options = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": state / "lists",
        "Dir::State::Status": state / "status",
        "Dir::Cache::Archives": state / "archives",
        "Dir::Cache::pkgcache": state / "pkgcache.bin",
        "Dir::Cache::srcpkgcache": state / "srcpkgcache.bin",
        "APT::Get::List-Cleanup": "false",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    _run("apt-get", *flags, "update")
    _run("apt-get", *flags, "download", *PACKAGES, *LIBRARIES, cwd=cache)
    return sorted(cache.glob("*.deb"))


def _mirror() -> str:
    """The Debian mirror this machine's own package lists come from."""
    pattern = re.compile(r"(?:^deb\s(?:\[.*?\]\s*)?|^URIs:\s*)(\S+/debian)/?(?:\s|$)", re.MULTILINE)
    folder = Path("/etc/apt")
    for file in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if file.is_file():
            found = pattern.search(file.read_text())
            if found:
                return found.group(1)
    raise InstallError("no Debian mirror is configured in /etc/apt")


def _lay_out(unpacked: Path, root: Path) -> None:
    """Bring the two packages' folders side by side, with the libraries the host programs ask for."""
    host = next(unpacked.glob("usr/lib/**/host-linux-x64"), None)
    target = next(unpacked.glob("usr/lib/**/target-linux-x64"), None)
    if host is None or target is None:
        raise InstallError("the packages do not hold a host-linux-x64 and a target-linux-x64 folder")
    libraries = [
        found for name in ("libssh.so.4", "libpfm.so.4", "libelf.so.1") for found in unpacked.glob(f"usr/lib/*/{name}")
    ]
    if len(libraries) != 3:
        raise InstallError("a library the host programs need is not in the packages")
    root.mkdir(parents=True)
    for folder in (host, target):
        shutil.copytree(folder, root / folder.name, symlinks=True)
    for library in libraries:
        copy = root / host.name / library.name
        copy.unlink(missing_ok=True)
        shutil.copyfile(library, copy)
    # Debian links the bundled name to the system's library, which this machine need not have
    bundled = root / host.name / "libssh.so"
    bundled.unlink(missing_ok=True)
    bundled.symlink_to("libssh.so.4")
    # `nsys stats` looks for its modules beside the host programs
    for module in (root / target.name / "python" / "lib").glob("*.py"):
        shutil.copyfile(module, root / host.name / "python" / "lib" / module.name)
    (root / "bin").mkdir()
    (root / "bin" / "nsys").symlink_to(Path("..") / target.name / "nsys")


def _run(*command: str, cwd: Path | None = None) -> None:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise InstallError(f"{' '.join(command[:1] + command[-1:])}: {lines[-1] if lines else done.returncode}")


def main() -> int:
    """Install into the folder named on the command line."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: install_nsys.py CACHE_FOLDER\n")
        return 2
    try:
        program = install(Path(sys.argv[1]))
        install_nvtx(Path(sys.argv[1]))
    except InstallError as error:
        sys.stderr.write(f"nsys cannot be installed here: {error}\n")
        return 1
    sys.stdout.write(f"{program}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
