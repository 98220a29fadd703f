"""Java archives that tests need, resolved by Maven once per machine and checked against committed sums.

Each set is a directory with a pom.xml and a SHA256SUMS beside it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from cluster.gobuild import BuildError, cache_dir

HERE = Path(__file__).parent
BROKER = HERE / "broker"
CONNECTOR = HERE / "connector"
FORMATS = HERE.parent / "formats"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
LONGEST = 600


def jars(directory: Path) -> list[Path]:
    """The archives of one set, fetched first if this machine has not got them yet."""
    sums = _sums(directory)
    # The sums are the version: another pom.xml has other sums, and never meets what an older one left.
    version = hashlib.sha256((directory / "SHA256SUMS").read_bytes()).hexdigest()[:12]
    target = cache_dir() / "jars" / f"{directory.name}-{version}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _fetch(directory, sums, target)
    return [target / name for name in sums]


def _fetch(directory: Path, sums: dict[str, str], target: Path) -> None:
    unfinished = target.with_name(f".{target.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    print(f"fetching the jars of {directory.name} with Maven (once per machine)", file=sys.stderr, flush=True)
    command = [_maven(), "-q", "-B", "-f", str(directory / "pom.xml"), PLUGIN, "-DincludeScope=runtime"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={unfinished}"], capture_output=True, text=True, timeout=LONGEST, check=False
    )
    if done.returncode != 0:
        raise BuildError(f"Maven could not fetch the jars of {directory.name}:\n{done.stdout[-3000:]}")
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in unfinished.glob("*.jar")}
    if found != sums:
        wrong = sorted(name for name in found.keys() | sums.keys() if found.get(name) != sums.get(name))
        raise BuildError(f"{directory.name}: these jars are not those of SHA256SUMS: {', '.join(wrong)}")
    unfinished.rename(target)


def _maven() -> str:
    found = shutil.which("mvn")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "-qq", "-y", "install", "--no-install-recommends", "maven"]
        for command in (["apt-get", "-qq", "update"], install):
            subprocess.run(command, env=environment, stdout=sys.stderr, check=True, timeout=LONGEST)
        found = shutil.which("mvn")
    if found is None:
        raise BuildError("Maven is needed to fetch the jars: please install it (mvn on PATH) and try again")
    return found


def _sums(directory: Path) -> dict[str, str]:
    lines = (line.split() for line in (directory / "SHA256SUMS").read_text().splitlines())
    return {name: digest for digest, name in lines}


if __name__ == "__main__":
    for each in (BROKER, CONNECTOR, FORMATS):
        jars(each)
