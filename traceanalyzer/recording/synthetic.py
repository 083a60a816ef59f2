"""A synthetic detection data set: seeded shapes on textured JPEGs, with labels that fit them."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from traceanalyzer.recording.facts import usable_cores

CLASSES = ("circle", "rectangle", "triangle")
_MARKER = "dataset.json"
_QUALITY = 90

Box = tuple[int, float, float, float, float]
"""Class, then centre x, centre y, width and height as fractions of the side."""


@dataclass(frozen=True)
class SyntheticSpec:
    """What to draw.

    Attributes:
        images: Training images.
        validation_images: Validation images.
        size: Side of an image in pixels.
        seed: Seed of everything drawn.
        shapes: Largest number of shapes on one image.
    """

    images: int = 64
    validation_images: int = 8
    size: int = 640
    seed: int = 0
    shapes: int = 8

    def __post_init__(self) -> None:
        if self.images < 1 or self.validation_images < 1 or self.size < 32:
            raise ValueError("a synthetic data set needs images, validation images and a size of at least 32 pixels")


def make_dataset(root: Path, spec: SyntheticSpec) -> Path:
    """Write the data set, or find it there from before, and return its ``data.yaml``.

    Args:
        root: Folder of the data set.
        spec: What to draw.
    """
    yaml = root / "data.yaml"
    marker = root / _MARKER
    if marker.is_file() and yaml.is_file() and json.loads(marker.read_text()) == asdict(spec):
        return yaml
    for stream, (split, count) in enumerate((("train", spec.images), ("val", spec.validation_images))):
        _write_split(root, split, count, spec, stream)
    names = "\n".join(f"  {index}: {name}" for index, name in enumerate(CLASSES))
    yaml.write_text(f"path: {json.dumps(str(root.resolve()))}\ntrain: images/train\nval: images/val\nnames:\n{names}\n")
    marker.write_text(json.dumps(asdict(spec)))
    return yaml


def wait_for_dataset(root: Path, seconds: float = 600) -> None:
    """Wait until the first rank has written a data set that all ranks share; after that time, do without.

    Args:
        root: Folder of the data set.
        seconds: Longest wait.
    """
    deadline = time.monotonic() + seconds
    while not (root / _MARKER).is_file() and time.monotonic() < deadline:
        time.sleep(0.1)


def _write_split(root: Path, split: str, count: int, spec: SyntheticSpec, stream: int) -> None:
    (root / "images" / split).mkdir(parents=True, exist_ok=True)
    (root / "labels" / split).mkdir(parents=True, exist_ok=True)
    jobs = [(root, split, number, spec, stream) for number in range(count)]
    # Threads: OpenCV and numpy release the interpreter's lock for most of the work, and no process is started.
    with ThreadPoolExecutor(usable_cores()) as pool:
        for _ in pool.map(_write_image, jobs):
            pass


def _write_image(job: tuple[Path, str, int, SyntheticSpec, int]) -> None:
    import cv2

    root, split, number, spec, stream = job
    # A stream of its own per image: the same picture whatever order or process it is drawn in.
    picture, boxes = draw_image(spec.size, spec.shapes, np.random.default_rng((spec.seed, stream, number)))
    encoded, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    if not encoded:
        raise OSError("JPEG encoding failed")
    (root / "images" / split / f"{number:06d}.jpg").write_bytes(data.tobytes())
    lines = [f"{kind} {x:.6f} {y:.6f} {w:.6f} {h:.6f}" for kind, x, y, w, h in boxes]
    (root / "labels" / split / f"{number:06d}.txt").write_text("\n".join(lines) + "\n")


def draw_image(size: int, shapes: int, random: np.random.Generator) -> tuple[Any, list[Box]]:
    """Draw one image.

    Args:
        size: Side in pixels.
        shapes: Largest number of shapes.
        random: Source of randomness.

    Returns:
        The image, ``size × size × 3`` uint8, and per shape its class and its box (centre x, centre y, width, height;
        fractions of the side).
    """
    import cv2

    # Low-resolution noise, enlarged: costs a JPEG decoder about what a photograph does, unlike a flat background.
    coarse = random.integers(40, 200, (max(size // 16, 2), max(size // 16, 2), 3), dtype=np.uint8)
    picture = cv2.resize(coarse, (size, size), interpolation=cv2.INTER_CUBIC)
    boxes = []
    for _ in range(int(random.integers(1, shapes + 1))):
        kind = int(random.integers(len(CLASSES)))
        width, height = (int(value) for value in random.integers(max(size // 16, 4), max(size // 3, 6), 2))
        if CLASSES[kind] == "circle":
            width = height = min(width, height)
        left = int(random.integers(0, size - width))
        top = int(random.integers(0, size - height))
        colour = tuple(int(value) for value in random.integers(0, 256, 3))
        box = _draw(cv2, picture, CLASSES[kind], (left, top, width, height), colour)
        x, y, w, h = (value / size for value in box)
        boxes.append((kind, x + w / 2, y + h / 2, w, h))
    return picture, boxes


def _draw(
    cv2: Any, picture: Any, kind: str, box: tuple[int, int, int, int], colour: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """Draw a filled shape and return the pixels it covers: left, top, width, height."""
    left, top, width, height = box
    if kind == "rectangle":
        cv2.rectangle(picture, (left, top), (left + width - 1, top + height - 1), colour, -1)
    elif kind == "circle":
        radius = (width - 1) // 2
        cv2.circle(picture, (left + radius, top + radius), radius, colour, -1)
        width = height = 2 * radius + 1
    else:
        corners = [(left, top + height - 1), (left + width - 1, top + height - 1), (left + (width - 1) // 2, top)]
        cv2.fillPoly(picture, [np.array(corners, dtype=np.int32)], colour)
    return left, top, width, height
