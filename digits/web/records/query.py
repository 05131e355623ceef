"""The query of the Explore page in the arguments of a URL."""

from __future__ import annotations

import re
from typing import Any, Literal

from werkzeug.datastructures import MultiDict

from digits.core.errors import BadRequest, NotFound
from digits.core.job import ID
from digits.data.manifest import Manifest
from digits.data.models.comparison import GROUPS
from digits.data.records.search import ALL, MEASURES, Range, RecordQuery
from digits.kinds.forms.request_fields import flag, whole
from digits.kinds.views import Views

MAX_TEXT = 200
_EVALUATION = re.compile(rf"(?a:{ID})/(?a:[\w-][\w.-]{{0,200}})\Z")


def parse_query(arguments: MultiDict[str, str], manifest: Manifest, views: Views[Any]) -> RecordQuery:
    """Return the query in the arguments of a request; raises BadRequest and NotFound."""
    text = arguments.get("q", "").replace("\0", "").strip()[:MAX_TEXT]
    finding = arguments.get("finding", "")
    parsed = (Range.parse(name, arguments.getlist(name)) for name in MEASURES if name in arguments)
    ranges = tuple(item for item in parsed if item is not None)
    evaluated = arguments.get("evaluation", "")
    split_name = arguments.get("db", ALL if text or finding or ranges or evaluated else "train")
    # DIGITS calls a split train_db.
    split = next((name for name in manifest.splits if name in split_name), None)
    if split_name == ALL:
        split = ALL if len(manifest.splits) > 1 else next(iter(manifest.splits))
    if split is None:
        raise NotFound(f"This dataset has no split called “{split_name}”.")
    label = whole(arguments, "label", None)
    if label is not None and not 0 <= label < len(manifest.groups):
        last = len(manifest.groups) - 1
        raise NotFound(f"This dataset has no {views.group} {label}: its {views.groups} are 0 to {last}.")
    contain = whole(arguments, "contain", None)
    if contain is not None and not manifest.lists_classes:
        raise NotFound(
            f"The classes that each {views.record} of this dataset contains are not searchable.",
            "Filter by “label” instead, or create a new version of the dataset.",
        )
    if contain is not None and not 0 <= contain < len(manifest.contained):
        last = len(manifest.contained) - 1
        raise NotFound(
            f"This dataset has no class {contain}: its classes are 0 to {last - 1}, and {last} is none."
        )
    compared = arguments.get("compare", "") if evaluated else ""
    for name in filter(None, (evaluated, compared)):
        if not _EVALUATION.match(name):
            raise NotFound(f"There is no evaluation called “{name[:MAX_TEXT]}”.")
    outcome = arguments.get("outcome", "") if compared else ""
    if compared and outcome not in GROUPS:
        raise BadRequest(f"outcome: choose one of {', '.join(GROUPS)}.")
    predicted = whole(arguments, "predicted", None) if evaluated else None
    if predicted is not None and not 0 <= predicted < len(manifest.target.labels):
        raise NotFound(f"This dataset has no class {predicted}.")
    wrong: Literal["", "1", "suspect"] = ""
    if evaluated and arguments.get("wrong") == "suspect":
        wrong = "suspect"
    elif evaluated and flag(arguments, "wrong"):
        wrong = "1"
    return RecordQuery(
        split, text, label, contain, finding, ranges, evaluated, predicted, wrong, compared, outcome
    )
