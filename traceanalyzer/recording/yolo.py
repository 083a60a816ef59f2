"""Record Ultralytics' own detection trainer.

Two lines record any training started through Ultralytics' Python interface::

    from traceanalyzer.recording import record_ultralytics
    record_ultralytics(model, out="RUN")       # then model.train(...) as usual
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from traceanalyzer.errors import UsageError
from traceanalyzer.recording.facts import environment_rank
from traceanalyzer.recording.faults import Fault, install, make_faults
from traceanalyzer.recording.options import YoloOptions, to_words
from traceanalyzer.recording.recorder import Recorder, RecordingComplete, default_command
from traceanalyzer.recording.run_folder import prepare_folder
from traceanalyzer.recording.synthetic import SyntheticSpec, make_dataset, wait_for_dataset
from traceanalyzer.recording.trial_plan import TrialPlan
from traceanalyzer.recording.trials import plan_of
from traceanalyzer.recording.trials_yolo import run_yolo_trials
from traceanalyzer.recording.yolo_hooks import attach

_MANY_EPOCHS = 1000  # the recorder ends the training; no epoch count may end it first or change the learning rate
_MOST_IMAGES = 2048


def record_yolo(
    options: YoloOptions, *, profiler: str | None = None, append: bool = False, say: Callable[[str], None] = print
) -> Path:
    """Train for as many steps as the schedule needs and leave a run folder.

    Args:
        options: What to run.
        profiler: Profiler of this pass, where it differs from ``options.profiler``.
        append: Add a pass to the run in ``options.out``.
        say: Takes lines for the user.

    Returns:
        The run folder.

    Raises:
        UsageError: The options or the environment do not allow it.
    """
    faults = make_faults(options.fault)
    options = _with_faults(options, faults)
    chosen = profiler or options.profiler
    out = options.out.resolve()
    if not append and environment_rank() == 0:
        prepare_folder(out, overwrite=options.overwrite)
    for fault in faults:
        os.environ.update(fault.settings.environment)
    with _workplace(options) as place:
        trainer = _make_trainer(options, faults, place)
        on_cuda = str(trainer.device.type) == "cuda"
        started: list[Recorder] = []

        def begin(it: Any) -> None:
            # Only now are the settings known to work; a folder is left from here on, whatever happens.
            schedule = replace(options, profiler=chosen).schedule(cuda=on_cuda, head_start=_head_start(it))
            recorder = Recorder(
                out,
                schedule=schedule,
                profiler="none" if chosen == "none" else ("nsys" if chosen == "nsys" else "torch"),
                options=options.trace_options,
                append=append,
                overwrite=options.overwrite,
                command=default_command(["record", "yolo", *to_words(options, ("out", "nsys", "dataset_dir"))]),
                stop_when_done=True,
            )
            started.append(recorder)
            plan = plan_of(options.trials, options.trial_seconds, options.trial, options.seed)
            if plan is not None and chosen != "nsys":
                recorder.trials = partial(run_yolo_trials, it, recorder, plan)
            recorder.__enter__()
            _label(recorder, faults, on_cuda)
            _begin(it, recorder, faults)

        trainer.add_callback("on_pretrain_routine_end", begin)
        _train(trainer, started)
    if started:
        _describe(started[0], say)
    return out


def _train(trainer: Any, started: list[Recorder]) -> None:
    """Train until the recorder ends it.

    Args:
        trainer: The trainer.
        started: Filled with the recorder once the training has been set up.

    Raises:
        UsageError: It could not be set up.
    """
    try:
        trainer.train()
    except RecordingComplete:
        started[0].finish()
    except BaseException as problem:
        if started:
            started[0].finish(problem)
            raise
        if isinstance(problem, Exception):
            raise UsageError(f"Ultralytics could not set the training up: {_first_line(problem)}") from problem
        raise
    else:
        for recorder in started:
            recorder.finish()
    finally:
        _close_loaders(trainer)
        _leave_group()


def _leave_group() -> None:
    """Leave the group of processes the trainer formed for several devices."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _first_line(problem: Exception) -> str:
    return next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)


class UltralyticsCallback:
    """An ``on_pretrain_routine_end`` callback that records the training it is added to.

    Args:
        recorder: The recorder; when its schedule is done it detaches and the training goes on.
        trials: Changes to try before that; the training goes on as if they had not been.
    """

    def __init__(self, recorder: Recorder, trials: TrialPlan | None = None) -> None:
        self.recorder = recorder
        self._plan = trials

    def __call__(self, trainer: Any) -> None:
        """Attach to the trainer and watch for its end."""
        if self._plan is not None:
            self.recorder.trials = partial(run_yolo_trials, trainer, self.recorder, self._plan)
        self.recorder.__enter__()
        attach(trainer, self.recorder)
        self.recorder.undo_later(lambda: log_to_wandb(self.recorder))
        trainer.add_callback("teardown", lambda _: self.recorder.finish(sys.exc_info()[1]))


def record_ultralytics(
    model: Any, out: str | Path, *, trials: TrialPlan | None = None, **settings: Any
) -> UltralyticsCallback:
    """Record the training an Ultralytics model is about to do.

    Args:
        model: An ``ultralytics.YOLO`` model or a trainer.
        out: Run folder to write.
        trials: Changes to try once the recording is done. Callbacks of the training run in them too.
        **settings: Further arguments of ``Recorder``.

    Returns:
        The callback, whose ``recorder`` tells how far the recording is.
    """
    callback = UltralyticsCallback(Recorder(out, **settings), trials)
    model.add_callback("on_pretrain_routine_end", callback)
    return callback


def log_to_wandb(recorder: Recorder) -> None:
    """Log the measured step and phase times to the active Weights & Biases run, where there is one."""
    wandb = sys.modules.get("wandb")
    if wandb is not None and getattr(wandb, "run", None) is not None:
        wandb.log(scalars(recorder))


def scalars(recorder: Recorder) -> dict[str, float]:
    """Return mean step and phase times in milliseconds, by scalar name."""
    found = {}
    for kind, times in recorder.times().items():
        if times.step_ns:
            count = len(times.step_ns)
            found[f"traceanalyzer/{kind}_step_ms"] = sum(times.step_ns) / count / 1e6
            for phase, values in times.phase_ns.items():
                found[f"traceanalyzer/{kind}_{phase}_ms"] = sum(values) / count / 1e6
    return found


def _with_faults(options: YoloOptions, faults: list[Fault]) -> YoloOptions:
    own = {"model", "batch", "imgsz", "workers", "amp"}
    for fault in faults:
        run = {name: value for name, value in fault.settings.run.items() if getattr(options, name) in (None, False)}
        trainer = {name: value for name, value in fault.settings.trainer.items() if name in own}
        options = replace(options, **run, **trainer)
    # An explicit --set has the last word, so that a fault can be tried at another size.
    for name, value in (word.split("=", 1) for word in options.set):
        if name in own:
            options = replace(options, **{name: _as_declared(name, value)})
    return options


def _as_declared(name: str, text: str) -> Any:
    if name == "model":
        return text
    if name == "amp":
        return _parse(text) not in (False, "fp32")
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--set {name}={text}: not a number") from None


def _make_trainer(options: YoloOptions, faults: list[Fault], place: Path) -> Any:
    try:
        from ultralytics.models.yolo.detect import DetectionTrainer
        from ultralytics.utils import LOGGER
    except ImportError:
        raise UsageError("record yolo needs Ultralytics: pip install 'traceanalyzer[record]'") from None
    LOGGER.setLevel(logging.WARNING)
    data = options.data or str(_synthetic_data(options, place))
    settings: dict[str, Any] = {
        "model": options.model, "data": data, "batch": options.batch, "imgsz": options.imgsz,
        "workers": options.workers, "amp": options.amp, "seed": options.seed, "epochs": _MANY_EPOCHS,
        "project": str(place / "training"), "name": "run", "exist_ok": True,
        "val": False, "save": False, "plots": False, "close_mosaic": 0, "verbose": False,
        # The trainer's warm-up epochs step the optimizer ever more rarely; steps compared here must be alike.
        "warmup_epochs": 0,
    }  # fmt: skip
    if options.device is not None:
        settings["device"] = options.device
    for fault in faults:
        settings.update({key: value for key, value in fault.settings.trainer.items() if key not in settings})
    for word in options.set:
        name, value = word.split("=", 1)
        settings[name] = _parse(value)
    try:
        trainer = DetectionTrainer(overrides=settings)
    except (OSError, SyntaxError, AssertionError, ValueError, TypeError, KeyError, RuntimeError) as problem:
        raise UsageError(f"Ultralytics refused the settings: {_first_line(problem)}") from problem
    # The trainer drops workers on a CPU; a recording should show the loader that was asked for.
    trainer.args.workers = int(settings["workers"])
    return trainer


def _synthetic_data(options: YoloOptions, place: Path) -> Path:
    batch = options.batch
    if options.batches_per_epoch is not None:
        images = options.batches_per_epoch * batch
    elif options.images is not None:
        images = options.images
    else:
        # One epoch holds the whole schedule where that is affordable, and always whole batches: a smaller last batch
        # would be a new shape to search convolution plans for.
        needed = options.schedule(cuda=True, head_start=4 * options.workers).total + 1
        images = max(min(needed, _MOST_IMAGES // batch), 2) * batch
    spec = SyntheticSpec(images=images, size=options.imgsz, seed=options.seed)
    root = options.dataset_dir or place / "data"
    folder = root / f"shapes-{images}-{options.imgsz}-{options.seed}"
    if options.dataset_dir is not None and environment_rank() > 0:
        wait_for_dataset(folder)
    return make_dataset(folder, spec)


def _head_start(trainer: Any) -> int:
    workers = int(trainer.args.workers)
    return 4 * workers  # Ultralytics' loader prefetches four batches per worker


def _begin(trainer: Any, recorder: Recorder, faults: list[Fault]) -> None:
    attach(trainer, recorder)
    if faults:
        install(faults, trainer, recorder)
        from traceanalyzer.recording.yolo_hooks import trainer_configuration

        recorder.configure(**trainer_configuration(trainer))


def _label(recorder: Recorder, faults: list[Fault], on_cuda: bool) -> None:
    recorder.folder.document["faults"] = [
        {"name": fault.name, "code": fault.code, "about": fault.about} for fault in faults
    ]
    for fault in faults:
        if fault.needs_cuda and not on_cuda:
            recorder.folder.note(f"the fault {fault.name} shows only on a CUDA device; here it is a label")
    recorder.folder.save()


def _close_loaders(trainer: Any) -> None:
    for name in ("train_loader", "test_loader"):
        loader = getattr(trainer, name, None)
        if loader is not None and hasattr(loader, "close"):
            loader.close()


def _describe(recorder: Recorder, say: Callable[[str], None]) -> None:
    for kind, times in recorder.times().items():
        if times.step_ns:
            ordered = sorted(times.step_ns)
            say(f"{kind} step: median {ordered[len(ordered) // 2] / 1e6:.1f} ms over {len(ordered)} steps")
    for sentence in recorder.folder.document["notes"]:
        say(f"note: {sentence}")


def _parse(text: str) -> Any:
    """Read a value as Ultralytics' own command line does."""
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered == "none":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@contextmanager
def _workplace(options: YoloOptions) -> Iterator[Path]:
    """A temporary folder that takes everything Ultralytics and matplotlib write, and keeps both off the network."""
    with tempfile.TemporaryDirectory(prefix="traceanalyzer-") as folder:
        place = Path(folder)
        os.environ["YOLO_CONFIG_DIR"] = str(place)
        os.environ["MPLCONFIGDIR"] = str(place / "matplotlib")
        os.environ.setdefault("YOLO_AUTOINSTALL", "false")
        os.environ.setdefault("YOLO_VERBOSE", "false")
        local_model = options.model.endswith((".yaml", ".yml")) or Path(options.model).is_file()
        if local_model and (options.data is None or Path(options.data).is_file()):
            os.environ.setdefault("YOLO_OFFLINE", "true")
        _provide_font(place / "Ultralytics")
        _skip_amp_check()
        yield place


def _provide_font(folder: Path) -> None:
    """Put a font where Ultralytics looks for one, which it would download otherwise."""
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", folder / "Arial.ttf")


def _skip_amp_check() -> None:
    """Keep the trainer from downloading a checkpoint only to see whether mixed precision works on this GPU.

    A recording shows what was asked for; ``--no-amp`` is the way to ask for something else.
    """
    try:
        from ultralytics.engine import trainer
    except ImportError:
        return
    trainer.check_amp = lambda model: next(model.parameters()).device.type == "cuda"


__all__ = ["RecordingComplete", "UltralyticsCallback", "record_ultralytics", "record_yolo"]
