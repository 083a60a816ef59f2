"""Faults of copies, synchronisation, precision and the host's own work."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import tempfile
from typing import Any, ClassVar

from traceanalyzer.recording.faults import Fault, FaultSettings, uses_cuda


class Healthy(Fault):
    """Nothing wrong: a model and images large enough to keep the GPU busy."""

    name: ClassVar[str] = "healthy"
    code: ClassVar[str] = "TA903"
    about: ClassVar[str] = "large model, large batch, AMP, enough workers: nothing to find"
    settings: ClassVar[FaultSettings] = FaultSettings(
        trainer={
            "model": "yolo11x.yaml", "imgsz": 1280, "batch": 24, "workers": 12, "deterministic": False, "amp": True,
        },
    )  # fmt: skip


class Pageable(Fault):
    """Batches lie in pageable memory."""

    name: ClassVar[str] = "pageable"
    code: ClassVar[str] = "TA301"
    about: ClassVar[str] = "pin_memory=False: every input copy goes through a staging buffer"
    needs_cuda: ClassVar[bool] = True

    def prepare(self, trainer: Any) -> None:
        """Turn pinning off before the loader starts."""
        trainer.train_loader.pin_memory = False


class Blocking(Fault):
    """The host waits for every input copy."""

    name: ClassVar[str] = "blocking"
    code: ClassVar[str] = "TA302"
    about: ClassVar[str] = "inputs are copied without non_blocking"
    needs_cuda: ClassVar[bool] = True

    def on_batch(self, trainer: Any, batch: dict[str, Any]) -> None:
        """Move tensors with blocking copies; the trainer's own copy then has nothing left to do."""
        import torch

        for key, value in batch.items():
            if isinstance(value, torch.Tensor):
                batch[key] = value.to(trainer.device, non_blocking=False)


class TinyCopies(Fault):
    """Every label row is copied on its own."""

    name: ClassVar[str] = "tiny-copies"
    code: ClassVar[str] = "TA304"
    about: ClassVar[str] = "boxes are moved to the device one row at a time"
    needs_cuda: ClassVar[bool] = True

    def on_batch(self, trainer: Any, batch: dict[str, Any]) -> None:
        """Move boxes row by row."""
        import torch

        rows = [row.to(trainer.device) for row in batch["bboxes"]]
        if rows:
            batch["bboxes"] = torch.stack(rows)


class ItemPerStep(Fault):
    """Values are read back from the device all the time."""

    name: ClassVar[str] = "item-per-step"
    code: ClassVar[str] = "TA501"
    about: ClassVar[str] = "40 .item() on the loss in every step"
    needs_cuda: ClassVar[bool] = True

    def each_step(self, trainer: Any) -> None:
        """Read the loss forty times, each time after a little device work."""
        for _ in range(40):
            (trainer.loss.detach() * 2).item()


class DeviceSync(Fault):
    """The whole device is waited for."""

    name: ClassVar[str] = "device-sync"
    code: ClassVar[str] = "TA502"
    about: ClassVar[str] = "torch.cuda.synchronize() after every top-level layer of the model"
    needs_cuda: ClassVar[bool] = True

    def prepare(self, trainer: Any) -> None:
        """Wait after each layer."""
        import torch
        from ultralytics.utils.torch_utils import unwrap_model

        self._hooks = []
        if uses_cuda(trainer):
            for layer in unwrap_model(trainer.model).model:
                self._hooks.append(layer.register_forward_hook(lambda *_: torch.cuda.synchronize()))

    def undo(self) -> None:
        """Stop waiting."""
        for hook in self._hooks:
            hook.remove()


class PrintTensor(Fault):
    """A CUDA tensor is printed in every step."""

    name: ClassVar[str] = "print-tensor"
    code: ClassVar[str] = "TA501"
    about: ClassVar[str] = "printing the losses and a weight tensor formats them on the host"
    needs_cuda: ClassVar[bool] = True

    def each_step(self, trainer: Any) -> None:
        """Print to nowhere; the cost is in making the text."""
        weight = next(trainer.model.parameters())
        with contextlib.redirect_stdout(io.StringIO()):
            for value in trainer.loss_items.values() if isinstance(trainer.loss_items, dict) else trainer.loss_items:
                print(value)  # noqa: T201 - the fault itself
            print(weight)  # noqa: T201 - the fault itself


class AnomalyMode(Fault):
    """Anomaly detection was left on."""

    name: ClassVar[str] = "anomaly-mode"
    code: ClassVar[str] = "TA207"
    about: ClassVar[str] = "torch.autograd.set_detect_anomaly(True) left on"
    # With AMP the gradients overflow now and then by design, which anomaly mode treats as an error.
    settings: ClassVar[FaultSettings] = FaultSettings(trainer={"amp": False})

    def prepare(self, trainer: Any) -> None:
        """Turn it on."""
        import torch

        torch.autograd.set_detect_anomaly(True)

    def undo(self) -> None:
        """Turn it off."""
        import torch

        torch.autograd.set_detect_anomaly(False)


class MultiScale(Fault):
    """Every batch has another size."""

    name: ClassVar[str] = "multi-scale"
    code: ClassVar[str] = "TA202"
    about: ClassVar[str] = "multi_scale=0.5: new shapes make the host search convolution plans again"
    settings: ClassVar[FaultSettings] = FaultSettings(trainer={"multi_scale": 0.5})


class AmpOff(Fault):
    """A model large enough to need tensor cores, in fp32."""

    name: ClassVar[str] = "amp-off"
    code: ClassVar[str] = "TA601"
    about: ClassVar[str] = "YOLO11l, batch 32, fp32 without TF32"
    needs_cuda: ClassVar[bool] = True
    settings: ClassVar[FaultSettings] = FaultSettings(
        trainer={"amp": False, "model": "yolo11l.yaml", "batch": 32, "workers": 12}
    )

    def prepare(self, trainer: Any) -> None:
        """Turn TF32 off."""
        import torch

        self._before = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = False

    def undo(self) -> None:
        """Put TF32 back."""
        import torch

        torch.backends.cudnn.allow_tf32 = self._before


class BatchSmall(Fault):
    """Two images per step."""

    name: ClassVar[str] = "batch-small"
    code: ClassVar[str] = "TA201"
    about: ClassVar[str] = "batch 2: kernels too short and too small for the device"
    settings: ClassVar[FaultSettings] = FaultSettings(trainer={"batch": 2})


class ChannelsLastOff(Fault):
    """AMP convolutions on NCHW tensors."""

    name: ClassVar[str] = "channels-last-off"
    code: ClassVar[str] = "TA603"
    about: ClassVar[str] = "YOLO11l, batch 32, AMP in the NCHW layout: layouts are converted around convolutions"
    needs_cuda: ClassVar[bool] = True
    settings: ClassVar[FaultSettings] = FaultSettings(
        trainer={"channels_last": False, "model": "yolo11l.yaml", "batch": 32, "workers": 12}
    )


class UnfusedOptimizer(Fault):
    """One kernel per parameter and operation."""

    name: ClassVar[str] = "unfused-optimizer"
    code: ClassVar[str] = "TA604"
    about: ClassVar[str] = "AdamW with foreach and fused off"
    settings: ClassVar[FaultSettings] = FaultSettings(trainer={"optimizer": "AdamW"})

    def prepare(self, trainer: Any) -> None:
        """Turn both off in every parameter group, and leave the gradients' unscaling to the scaler."""
        for group in trainer.optimizer.param_groups:
            group["foreach"] = False
            group["fused"] = False
        # An optimizer built fused promises GradScaler to unscale by itself, which only its fused kernels can.
        vars(trainer.optimizer).pop("_step_supports_amp_scaling", None)


class GcStorm(Fault):
    """Garbage is collected all the time."""

    name: ClassVar[str] = "gc-storm"
    code: ClassVar[str] = "TA205"
    about: ClassVar[str] = "a low collection threshold and many cyclic objects: full collections in every step"

    def prepare(self, trainer: Any) -> None:
        """Lower the thresholds and give the collector something to walk through."""
        self._before = gc.get_threshold()
        self._ballast = [[index] for index in range(400_000)]
        gc.set_threshold(200, 2, 2)

    def each_step(self, trainer: Any) -> None:
        """Make cycles, then collect everything twice."""
        for _ in range(500):
            cycle: list[Any] = []
            cycle.append(cycle)
        gc.collect()
        gc.collect()

    def undo(self) -> None:
        """Put the thresholds back."""
        gc.set_threshold(*self._before)
        self._ballast = []


class ValidateEveryStep(Fault):
    """Validation inside the training loop."""

    name: ClassVar[str] = "validate-every-step"
    code: ClassVar[str] = "TA801"
    about: ClassVar[str] = "the validation set is run after every training step"

    def each_step(self, trainer: Any) -> None:
        """Validate."""
        trainer.validate()


class CheckpointEveryStep(Fault):
    """Checkpoints inside the training loop."""

    name: ClassVar[str] = "checkpoint-every-step"
    code: ClassVar[str] = "TA802"
    about: ClassVar[str] = "the model is saved after every training step"

    def prepare(self, trainer: Any) -> None:
        """Leave the results table out of the checkpoint where the package that reads it is missing."""
        try:
            importlib.import_module("polars")
        except ImportError:
            trainer.read_results_csv = dict

    def each_step(self, trainer: Any) -> None:
        """Save."""
        trainer.save_model()


class LogEveryStep(Fault):
    """Metrics of every layer, flushed to disk every step."""

    name: ClassVar[str] = "log-every-step"
    code: ClassVar[str] = "TA803"
    about: ClassVar[str] = "every parameter's norm is read back and written to a synchronised file each step"

    def prepare(self, trainer: Any) -> None:
        """Open the log and name the work."""
        self._log = tempfile.TemporaryFile("w")  # noqa: SIM115 - open for the whole run

    def each_step(self, trainer: Any) -> None:
        """Read every norm back and force the file to disk."""
        with self.phase("log"):
            for name, value in trainer.model.named_parameters():
                self._log.write(f"{name} {value.detach().norm().item():.6g}\n")
            self._log.flush()
            os.fsync(self._log.fileno())

    def undo(self) -> None:
        """Close the log."""
        self._log.close()


class LazyLoading(Fault):
    """Kernels are loaded from their modules in the middle of steps."""

    name: ClassVar[str] = "lazy-loading"
    code: ClassVar[str] = "TA203"
    about: ClassVar[str] = "each step calls device functions that were never used before"
    needs_cuda: ClassVar[bool] = True
    settings: ClassVar[FaultSettings] = FaultSettings(environment={"CUDA_MODULE_LOADING": "LAZY"})

    def prepare(self, trainer: Any) -> None:
        """List functions of many kernels; each step takes the next four."""
        import torch

        names = sorted(name for name in dir(torch.special) if not name.startswith("_"))
        dtypes = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.int16)
        self._todo = [(getattr(torch.special, name), dtype) for dtype in dtypes for name in names]
        self._todo = [(function, dtype) for function, dtype in self._todo if callable(function)]

    def each_step(self, trainer: Any) -> None:
        """Call four more functions."""
        import torch

        done = 0
        while self._todo and done < 4:
            function, dtype = self._todo.pop(0)
            value = torch.ones(64, device=trainer.device).to(dtype)
            # Most take one tensor, some take two, a few take neither or not this type: those are passed over.
            for arguments in ((value,), (value, value)):
                with contextlib.suppress(TypeError, RuntimeError, NotImplementedError):
                    function(*arguments)
                    done += 1
                    break


FAULTS: tuple[type[Fault], ...] = (
    Healthy, Pageable, Blocking, TinyCopies, ItemPerStep, DeviceSync, PrintTensor, AnomalyMode, MultiScale, AmpOff,
    BatchSmall, ChannelsLastOff, UnfusedOptimizer, GcStorm, ValidateEveryStep, CheckpointEveryStep, LogEveryStep,
    LazyLoading,
)  # fmt: skip
