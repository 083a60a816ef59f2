"""Synthetic images are reproducible and their labels fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

cv2 = pytest.importorskip("cv2")

from traceanalyzer.recording.synthetic import CLASSES, SyntheticSpec, draw_image, make_dataset  # noqa: E402

pytestmark = pytest.mark.torch


def files(root: Path) -> dict[str, bytes]:
    kinds = (".jpg", ".txt")
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.suffix in kinds}


def test_the_same_seed_gives_the_same_files_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        make_dataset(tmp_path / name, SyntheticSpec(images=5, validation_images=2, size=64, seed=seed))
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert files(tmp_path / "a") != files(tmp_path / "c")
    assert len(files(tmp_path / "a")) == 2 * 7


def test_training_and_validation_images_differ(tmp_path: Path) -> None:
    make_dataset(tmp_path, SyntheticSpec(images=1, validation_images=1, size=64))
    found = files(tmp_path)
    assert found["images/train/000000.jpg"] != found["images/val/000000.jpg"]


def test_an_existing_data_set_is_used_again_and_a_different_one_is_made_anew(tmp_path: Path) -> None:
    make_dataset(tmp_path, SyntheticSpec(images=2, validation_images=1, size=64))
    image = tmp_path / "images/train/000000.jpg"
    image.write_bytes(b"touched")
    make_dataset(tmp_path, SyntheticSpec(images=2, validation_images=1, size=64))
    assert image.read_bytes() == b"touched"
    make_dataset(tmp_path, SyntheticSpec(images=2, validation_images=1, size=64, seed=1))
    assert image.read_bytes() != b"touched"


@pytest.mark.parametrize("seed", range(12))
def test_a_lone_shape_fills_its_box_from_edge_to_edge(seed: int) -> None:
    size = 160
    picture, boxes = draw_image(size, 1, np.random.default_rng(seed))
    [(kind, x, y, width, height)] = boxes
    left, top = round((x - width / 2) * size), round((y - height / 2) * size)
    right, bottom = left + round(width * size), top + round(height * size)
    middle = (left + right - 1) // 2
    colour = picture[bottom - 1 if CLASSES[kind] == "triangle" else (top + bottom - 1) // 2, middle]
    covered = (picture == colour).all(axis=2)
    rows, columns = np.nonzero(covered)
    # Single background pixels may have the shape's colour; none of them widens the box by more than its own row.
    inside = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    assert inside.mean() > 0.99
    assert (rows[inside].min(), rows[inside].max()) == (top, bottom - 1)
    assert (columns[inside].min(), columns[inside].max()) == (left, right - 1)


def test_boxes_lie_within_the_image() -> None:
    _, boxes = draw_image(96, 20, np.random.default_rng(0))
    for _, x, y, width, height in boxes:
        assert 0 <= x - width / 2 <= x + width / 2 <= 1
        assert 0 <= y - height / 2 <= y + height / 2 <= 1


def test_an_empty_data_set_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 32 pixels"):
        SyntheticSpec(images=0)
