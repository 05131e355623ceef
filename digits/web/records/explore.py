"""The Explore page of a dataset, and its JSON: the records that match a query, page by page."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from urllib.parse import urlencode

import humanize
from flask import Blueprint, Response, jsonify, request, url_for
from markupsafe import Markup, escape

from digits.core.errors import NotFound
from digits.core.files import UnreadableFile
from digits.core.splits import SPLIT_TITLES
from digits.data.manifest import Manifest
from digits.data.records.index import names_path
from digits.data.records.search import (
    ALL,
    MEASURES,
    Checked,
    Matches,
    Place,
    RecordQuery,
    RecordSearch,
)
from digits.data.targets.target import Target
from digits.kinds import Kind
from digits.kinds.forms.request_fields import nearest
from digits.kinds.jobs import DatasetJob
from digits.kinds.versions.export import formats_of
from digits.kinds.versions.pending_edits import Pending
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.jobs import serializers
from digits.web.jobs.access import requested_job
from digits.web.jobs.query import MAX_PAGE, Page
from digits.web.records.gallery import gallery_items
from digits.web.records.images import (
    RecordImages,
    finished_manifest,
    shown_size,
)
from digits.web.records.pending import pending
from digits.web.records.query import MAX_TEXT, parse_query
from digits.web.resources.encoding import describe
from digits.web.resources.records import ExploredRecords, FindingCount, GalleryItem
from digits.web.responses.representation import render_in_turns, returns
from digits.web.services import services
from digits.web.template_filters import isolate

blueprint = Blueprint("explore", __name__)

PAGE_SIZES = (10, 25, 50, 100)
MAX_LABEL = 40
# Descriptions of the records in `digits.data.models.comparison.GROUPS`.
OUTCOME_WORDS = {
    "both_right": "{first} and {second} are right",
    "fixed": "{second} is right, {first} is wrong",
    "broken": "{first} is right, {second} is wrong",
    "both_wrong": "{first} and {second} are wrong",
    "improved": "Lower error with {second} than with {first}",
    "worsened": "Higher error with {second} than with {first}",
}


@dataclass(frozen=True)
class Explored:
    """The records of a page, and the matches among which they are."""

    query: RecordQuery
    checked: Checked
    matches: Matches
    page: Page[Place]
    items: list[GalleryItem]


@blueprint.get("/datasets/<kind:kind>/explore")
def show(kind: Kind) -> str:
    """Browse the records of a dataset: all, or those that match the filters in the URL."""
    job = requested_job(DatasetJob)
    views = views_of(job.data_kind)
    manifest = finished_manifest(job)
    explored = _explore(job, manifest)
    query, page = explored.query, explored.page
    base = url_for("explore.show", kind=job.data_kind)

    def address(query: RecordQuery, number: int = 1) -> str:
        # In the URL, the first page is 0.
        arguments = {"job_id": job.id, **query.arguments(), "page": number - 1, "size": page.size}
        return f"{base}?{urlencode(arguments)}"

    lists_classes = manifest.lists_classes
    names = manifest.contained if lists_classes else manifest.groups
    counts = None if query.without("contain").has_search else _group_counts(manifest, query.split)
    totals = {name: content.count for name, content in manifest.splits.items()}
    frozen = serializers.labels_of(job) if job.recipe.frozen else None
    edits_view = "corrections.update" if frozen and frozen.url else "pending_edits.update"
    return render_in_turns(
        "explore.html",
        job=serializers.row(job),
        base=base,
        kind=job.data_kind,
        views=views,
        query=query,
        titles={**SPLIT_TITLES, ALL: "All"},
        splits=_split_counts(explored, manifest),
        group_field="contain" if lists_classes else "label",
        group_word="contains" if lists_classes else views.group,
        options=group_options(
            tuple(names), tuple(counts) if counts else None, query.contain if lists_classes else query.label
        ),
        has_counts=counts is not None,
        split_total=totals.get(query.split, sum(totals.values())),
        is_searchable=_has_names(job, manifest),
        labels=names,
        groups=manifest.groups,
        target=manifest.target,
        finding=explored.checked.finding(query.finding),
        findings=explored.checked.findings,
        measures=MEASURES,
        offered=explored.checked.measures if views.checks_appearance else (),
        limits={item.name: item.limits for item in query.ranges},
        filters=[
            {"name": name, "words": words, "url": address(query.without(name))}
            for name, words in _filters(explored, views.group, manifest)
        ],
        clear_url=address(RecordQuery(query.split)),
        all_url=address(replace(query, split=ALL)),
        max_text=MAX_TEXT,
        page=page,
        address=functools.partial(address, query),
        sizes=PAGE_SIZES,
        items=explored.items,
        has_suggestions=any(item.suggested is not None for item in explored.items),
        legend=manifest.target.legend(
            has_ignored=any(box.ignored for item in explored.items for box in item.boxes)
        ),
        annotation_format=views.annotation_format,
        annotation_download=formats_of(job.data_kind).get(views.annotation_format),
        annotation_tools=views.annotation_tools,
        dataset_size=shown_size(job, manifest),
        frozen=frozen,
        edits_url=url_for(edits_view, job_id=job.id),
        edits=in_thread(_escaped, pending(job)),
        edited_target={"names": manifest.target.names, "form": _edited_form(manifest.target)},
    )


def _escaped(changes: Pending) -> Markup:
    """Return the JSON of the pending changes as the value of an attribute."""
    return Markup().join(escape(piece.decode()) for piece in changes.pieces())


def _edited_form(target: Target) -> str:
    """Return what the large view changes with one key: the ``class`` or the ``labels`` of an image, or neither."""
    forms = {"relabel": "class", "add_labels": "labels"}
    return next((form for edit, form in forms.items() if edit in target.edited_by), "")


@blueprint.get("/datasets/<kind:kind>/explore.json")
@returns(ExploredRecords)
def show_json(kind: Kind) -> Response:
    """Return the records of a page as JSON, with the same arguments as the page."""
    job = requested_job(DatasetJob)
    manifest = finished_manifest(job)
    explored = _explore(job, manifest)
    body = describe(
        ExploredRecords,
        explored.page,
        page=explored.page.number - 1,
        pages=explored.page.count,
        query=explored.query.arguments(),
        splits=_split_counts(explored, manifest),
        records=explored.items,
        findings=[
            FindingCount(finding.id, finding.title, finding.count) for finding in explored.checked.findings
        ],
    )
    return jsonify(body)


def _explore(job: DatasetJob, manifest: Manifest) -> Explored:
    """Return the page that the arguments of the request ask for; raises NotFound and BadRequest."""
    query = parse_query(request.args, manifest, views_of(job.data_kind))
    size = nearest(request.args, "size", 50, 1, max(PAGE_SIZES))
    number = nearest(request.args, "page", 0, 0, MAX_PAGE) + 1
    images = RecordImages(job, manifest)
    try:
        checked, matches, page = in_thread(
            _find, job, manifest, query, (number, size), services().record_search
        )
        return Explored(query, checked, matches, page, gallery_items(job, manifest, images, page.items))
    except UnreadableFile as error:
        hint = str(error)
        if query.text and not _has_names(job, manifest):
            hint = "The file names of this dataset are not searchable. Create a new version to search them."
        elif query.ranges and not services().record_search.checked(job.folder, manifest).measures:
            hint = "Their sizes and brightness are known after the health check of the dataset."
        raise NotFound("The records cannot be read.", hint) from error


def _find(
    job: DatasetJob,
    manifest: Manifest,
    query: RecordQuery,
    numbers: tuple[int, int],
    search: RecordSearch,
) -> tuple[Checked, Matches, Page[Place]]:
    """Return page ``numbers[0]`` of ``numbers[1]`` records; reads files. Raises UnreadableFile and NotFound."""
    matches = search.find(job.folder, manifest, query)
    total = len(matches) if query.split == ALL else matches.counts[query.split]
    page = Page.of(range(total), *numbers)
    places = matches.places(query.split, max(0, page.first - 1), page.last)
    return search.checked(job.folder, manifest), matches, Page(places, page.number, page.size, total)


def _split_counts(explored: Explored, manifest: Manifest) -> dict[str, int]:
    """Return the number of matches in each split, and in all if there are several."""
    counts = explored.matches.counts
    return {ALL: sum(counts.values()), **counts} if len(manifest.splits) > 1 else counts


def _group_counts(manifest: Manifest, split: str) -> list[int]:
    """Return the number of records of each group in a split, or in all; of those that contain each class, if known."""
    splits = [
        content.class_counts or content.counts
        for name, content in manifest.splits.items()
        if split in (ALL, name)
    ]
    return [sum(counts) for counts in zip(*splits, strict=True)]


def _filters(explored: Explored, group: str, manifest: Manifest) -> list[tuple[str, str]]:
    """Return the argument and the words of each active filter."""
    query = explored.query
    filters = [("q", f"Name contains “{query.text}”")] if query.text else []
    if query.label is not None:
        filters.append(("label", f"{group.capitalize()} “{manifest.groups[query.label]}”"))
    if query.contain is not None:
        filters.append(("contain", f"Contains “{manifest.contained[query.contain]}”"))
    if query.evaluation:
        filters += _evaluation_filters(query, manifest)
    if query.finding:
        finding = explored.checked.finding(query.finding)
        filters.append(("finding", finding.title if finding else query.finding))
    return filters + [(item.name, item.words) for item in query.ranges]


def _evaluation_filters(query: RecordQuery, manifest: Manifest) -> list[tuple[str, str]]:
    second = _model_of(query.evaluation)
    if query.outcome:
        words = OUTCOME_WORDS[query.outcome].format(first=_model_of(query.compared), second=second)
        filters = [("evaluation", words)]
    else:
        filters = [("evaluation", f"Sorted by the error of {second}")]
    if query.wrong:
        filters.append(("wrong", "Suspect labels" if query.wrong == "suspect" else "Wrong predictions"))
    if query.predicted is not None:
        filters.append(("predicted", f"Predicted “{manifest.target.names[query.predicted]}”"))
    return filters


def _model_of(evaluation: str) -> str:
    """Return the name of the model of an evaluation in quotes, or that of the evaluation if the model was deleted."""
    model_id, _, name = evaluation.partition("/")
    model = services().store.find(model_id)
    return f"“{model.name if model else name}”"


def _has_names(job: DatasetJob, manifest: Manifest) -> bool:
    """Return whether the file names of the dataset can be searched; those of older datasets cannot."""
    return all(
        names_path(job.folder / shard).is_file()
        for split in manifest.splits.values()
        for shard in split.shards[:1]
    )


def group_options(names: tuple[str, ...], counts: tuple[int, ...] | None, chosen: int | None) -> Markup:
    """Return the options of a field that chooses one of the groups ``names``."""
    options = _group_options(names, counts)
    if chosen is None:
        return options
    value = f'value="{chosen}"'
    return Markup(str(options).replace(value, f"{value} selected", 1))  # noqa: S704 - both are escaped


@functools.lru_cache(maxsize=32)
def _group_options(names: tuple[str, ...], counts: tuple[int, ...] | None) -> Markup:
    option = Markup('<option value="{}" title="{}">{}</option>')
    options = []
    for index, name in enumerate(names):
        words = isolate(name if len(name) <= MAX_LABEL else f"{name[: MAX_LABEL - 1]}…")
        options.append(
            option.format(index, name, f"{words} ({humanize.intcomma(counts[index])})" if counts else words)
        )
    return Markup().join(options)
