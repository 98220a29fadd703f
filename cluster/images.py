"""The images that the cluster runs: the project's own, and two of a single program each."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster.binaries import COREDNS, PAUSE
from cluster.buildah import Buildah, scratch_image
from cluster.containerd import Containerd, OciLayout
from cluster.layout import Layout
from cluster.progress import step

REPOSITORY = Path(__file__).parent.parent
# Targets of the Dockerfile. The tag is always the same: what runs is what was loaded last.
PROJECT = {"operator": "localhost/epochal-operator:dev", "spark": "localhost/epochal-spark:dev"}
# The stage that both of them begin with. Built by each at the same time, there would be two of it, and the next build
# would find the layers of only one of them again.
SHARED = "project"
SYSTEM = {scratch_image(PAUSE): PAUSE, scratch_image(COREDNS): COREDNS}


def stage_context(directory: Path) -> Path:
    """Copy what images are made of: buildah looks through the whole context, .venv included, at every build."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name in ("Dockerfile", ".dockerignore", *context_names((REPOSITORY / ".dockerignore").read_text())):
        source, target = REPOSITORY / name, directory / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    return directory


def context_names(dockerignore: str) -> list[str]:
    """What a .dockerignore lets in again after it has left out everything."""
    return [line.removeprefix("!") for line in dockerignore.splitlines() if line.startswith("!")]


def oci_layout(layout: Layout) -> OciLayout:
    return OciLayout(layout.images / "oci")


def build_system(layout: Layout) -> None:
    """The images of the programs that were built before."""
    buildah = Buildah(layout)
    for image, program in SYSTEM.items():
        buildah.ensure_scratch(image, program.binary)
        buildah.export(image, oci_layout(layout).directory)


def build_project(layout: Layout) -> None:
    buildah = Buildah(layout)
    buildah.ensure_base()
    context = stage_context(layout.images / "context")

    with step(f"build {', '.join(PROJECT.values())}"), ThreadPoolExecutor(len(PROJECT)) as pool:
        buildah.build(target=SHARED, image=f"localhost/epochal-{SHARED}:dev", context=context)
        builds = [pool.submit(buildah.build, target=t, image=image, context=context) for t, image in PROJECT.items()]
        for build in builds:
            build.result()
    # One after the other: they share an index.
    for image in PROJECT.values():
        buildah.export(image, oci_layout(layout).directory)


def load(layout: Layout, containerd: Containerd) -> list[str]:
    """Bring all images into the node; returns those that were not there, or have changed."""
    source = oci_layout(layout)
    loaded = []
    for image in (*SYSTEM, *PROJECT.values()):
        if not containerd.has(image, source.manifest(image)["digest"]):
            with step(f"load {image}"):
                containerd.load(source, image)
            loaded.append(image)
    source.prune()
    return loaded
