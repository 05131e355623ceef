"""Remote addresses in the forms of datasets: the sources of a recipe, and summaries of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import humanize
import msgspec

from digits.core.errors import DigitsError
from digits.core.machine.environment import SYSTEM_VARIABLES, inherited
from digits.core.recipe import CreateDataset
from digits.core.remote import RemoteSources, names_folder, sources_in
from digits.core.settings import Settings
from digits.data.remote import client
from digits.data.remote.fetch import News, Request, Source
from digits.data.sources.plan import count_of
from digits.kinds.forms.dataset import ImageDatasetForm
from digits.kinds.forms.summary import SourceSummary
from digits.web.services import services

# Limits of a summary.
MAX_ENTRIES = 2000
MAX_SECONDS = 20.0


def add_remote_sources(recipe: CreateDataset, form: ImageDatasetForm[Any], job_id: str) -> None:
    """Add to ``recipe`` the remote addresses that it contains; save the credentials in the form for its task."""
    sources = sources_in(msgspec.to_builtins(recipe), form.addresses)
    if not sources:
        return
    settings = services().settings
    credentials = form.credentials()
    recipe.remote = RemoteSources(
        folders=[address for address, kind in sources.items() if kind == "folder"],
        files=[address for address, kind in sources.items() if kind == "file"],
        allowed=list(settings.remote_addresses),
        max_bytes=settings.max_remote,
        max_files=settings.max_remote_files,
        endpoint=(form.s3_endpoint_url.data or "").strip(),
        credentials=str(services().credentials.save(job_id, credentials)) if credentials.access_key else "",
        keep_copies=bool(form.s3_keepcopiesondisk.data),
    )


def summarize(form: ImageDatasetForm[Any], settings: Settings) -> Iterator[SourceSummary]:
    """Yield summaries of the remote source in the fields of ``form``, from its first files."""
    addresses = form.source_addresses()
    credentials = form.credentials()
    try:
        for address in addresses:
            form.check_address(address)
        request = Request(
            sources=[
                Source(address=address, path=f"/{number}", is_folder=names_folder(address))
                for number, address in enumerate(addresses)
            ],
            allowed=list(settings.remote_addresses),
            max_bytes=settings.max_remote,
            max_files=MAX_ENTRIES,
            endpoint=(form.s3_endpoint_url.data or "").strip(),
            access_key=credentials.access_key,
            secret_key=credentials.secret_key,
            only_list=True,
        )
        environment = inherited(os.environ, (*SYSTEM_VARIABLES, *settings.pass_env))
        for news in client.run(request, environment=environment, seconds=MAX_SECONDS):
            yield _summary(news)
    except DigitsError as error:
        yield SourceSummary(refused=error.sentences)


def _summary(news: News) -> SourceSummary:
    count = sum(news.folders.values())
    files = f"More than {count_of(count, 'file')}" if news.is_partial else count_of(count, "file")
    folders = sorted((name, number) for name, number in news.folders.items() if name)
    facts = [f"{files} in {count_of(len(folders), 'folder')}." if folders else f"{files}."]
    if news.total_bytes is not None and not news.is_partial:
        facts.append(f"{humanize.naturalsize(news.total_bytes)}.")
    facts.append("Downloaded when the dataset is created.")
    summary = SourceSummary(facts=facts, problems=list(news.warnings), finished=news.is_finished)
    if folders:
        summary.set_bars("Files per folder", folders)
    return summary
