"""The exports of a model on its page."""

from __future__ import annotations

from typing import Any

import humanize
from flask import url_for
from msgspec.structs import asdict

from digits.core.model_job import ModelJob, epoch_label
from digits.data.models import export as exports
from digits.data.models.export import FORMATS, ModelExport, Refusal
from digits.kinds import standard_networks
from digits.kinds.views import format_number
from digits.web.offload import in_thread
from digits.web.resources.exports import FormatRow
from digits.web.resources.tasks import TaskProgress
from digits.web.services import services
from digits.web.services.background import state_of

SOURCES = {"val": "validation images", "train": "training images", "random": "random inputs"}


def panel(job: ModelJob) -> dict[str, Any]:
    """Return the panel on the page of a model: the state, the formats and the finished exports."""
    results = finished(job)
    return {
        **asdict(state(job)),
        "formats": formats(job),
        "results": [_row(job, item) for item in results],
        "serving": next((_serving(item) for item in results if item.format == "savedmodel"), None),
    }


def state(job: ModelJob) -> TaskProgress:
    """Return the state of the current export, see `digits.web.services.background.state_of`."""
    return state_of(services().background["export"], job.id, (job.folder / exports.FOLDER).is_dir())


def formats(job: ModelJob) -> list[FormatRow]:
    """Return all formats."""
    refused = refusals(job)
    return [FormatRow(name, item.title, item.use, refused.get(name)) for name, item in FORMATS.items()]


def refusals(job: ModelJob) -> dict[str, Refusal]:
    """Return the formats in which the model cannot be exported."""
    return in_thread(_refusals, job)


def _refusals(job: ModelJob) -> dict[str, Refusal]:
    standard = standard_networks.of_model(job)
    reasons = standard.refusals if standard else {}
    words = "The network cannot be exported in this format:"
    return {
        **{name: Refusal(message=f"{words} {reason}") for name, reason in reasons.items()},
        **({"litert-int8": exports.IMPORTED_IN_INT8} if job.is_imported else {}),
        **exports.refusals(job.folder),
    }


def finished(job: ModelJob) -> list[ModelExport]:
    """Return the exports of the current snapshots, the newest first."""
    return in_thread(exports.find_all, job.folder, (snapshot.name for snapshot in in_thread(job.snapshots)))


def url_of(job: ModelJob, made: ModelExport) -> str:
    """Return the URL of the archive of an export."""
    epoch = int(made.epoch) if made.epoch.is_integer() else made.epoch
    return url_for("model_export.download", job_id=job.id, format_=made.format, ending="zip", epoch=epoch)


def _row(job: ModelJob, made: ModelExport) -> dict[str, str]:
    difference = "random outputs" if made.difference is None else f"outputs within {made.difference:.1g}"
    stamp = [difference if made.difference != 0 else "same outputs"]
    if made.agreement is not None:
        stamp.append(f"{100 * made.agreement:.4g}% equal predictions")
    stamp += [
        f"{format_number(made.milliseconds)} ms per image in {made.runtime}",
        humanize.naturalsize(made.bytes),
    ]
    title = f"Epoch {epoch_label(made.epoch)}, {FORMATS[made.format].title}"
    used = f"{made.images} {SOURCES[made.source]}"
    about = f"Greatest difference to the network, relative to the largest output, on {used}"
    return {"title": title, "stamp": " · ".join(stamp), "about": about, "url": url_of(job, made)}


def _serving(made: ModelExport) -> dict[str, str]:
    """Return the ``command`` that serves the unpacked archive of a SavedModel with TensorFlow Serving.

    ``predictions`` is the name of its signature that returns the same numbers as this server; empty if it has none.
    """
    name = exports.SERVED_FOLDER
    command = (
        f'docker run --rm -p 8501:8501 -v "$PWD/{name}:/models/{name}" -v "$PWD/{exports.SERVING_FILE}:/models/'
        f'{exports.SERVING_FILE}" tensorflow/serving --model_config_file=/models/{exports.SERVING_FILE}'
    )
    has_predictions = exports.PREDICTIONS_SIGNATURE in made.signatures
    return {"command": command, "predictions": exports.PREDICTIONS_SIGNATURE if has_predictions else ""}
