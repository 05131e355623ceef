"""Activities: work for finished jobs in the background, from a declaration and a template each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from flask import Blueprint, Flask, Response, current_app, jsonify, request
from werkzeug.wrappers import Response as AnyResponse

from digits.core.errors import NotReady
from digits.core.job import Job
from digits.core.recipe import Recipe
from digits.core.task import Failure
from digits.runtime.background_tasks import BackgroundTask, BackgroundTasks
from digits.web.jobs.access import check_owner
from digits.web.jobs.serializers import PLACES, job_url
from digits.web.live import messages as live_messages
from digits.web.resources.tasks import ActivityState, ActivityTask, TaskError
from digits.web.responses.representation import respond, returns, twin
from digits.web.services import Services, require_tensorflow, services

# In the extensions of the application.
_EXTENSION = "digits.activities"


@dataclass(frozen=True)
class Panel:
    """What the template of an ``activity`` shows: its ``state`` with the results, and the ``choices`` of its form."""

    activity: Activity
    state: Any
    choices: Any


@dataclass(frozen=True, kw_only=True)
class Activity:
    """Tasks of one type for jobs of ``job_type``, started by a request: their routes, their JSON and their panel.

    ``name`` is that of their messages to browsers, ``path`` the end of their URLs below that of the job, and ``noun``
    the word for one. They run in ``task_folder`` of the job, in a slot of the ``pool``, and leave ``results`` there.
    Those of a job run one after another; each has its own ``key``.

    ``recipe`` returns the recipe of the task that a request starts, or raises an error; ``other_recipes`` does so for
    further paths. ``resource`` is the state with the fields that ``result`` returns: ``damage`` among them is a
    failure, the others are those of the resource. ``started`` returns further fields for the response to a start, and
    ``detail`` a resource with what only its JSON contains.

    ``template`` is that of the panel on the page of the job, which extends ``_activity.html``; ``choices`` are those
    of its form. ``page`` returns the page to which a form that started a recipe leads, by default the panel.
    """

    name: str
    path: str
    noun: str
    title: str
    job_type: type[Job]
    task_folder: str
    results: str
    pool: str = "activity"
    recipe: Callable[[Any], Recipe]
    resource: type[ActivityState]
    template: str = ""
    result: Callable[[Any], dict[str, Any]] = lambda job: {}
    choices: Callable[[Any], Any] = lambda job: None
    detail: Callable[[Any, Any], ActivityState] = lambda job, state: state
    started: Callable[[Any, Any], dict[str, Any]] = lambda job, recipe: {}
    key: Callable[[Any], str] = lambda recipe: ""
    task_title: Callable[[Any, Any], str] = lambda job, recipe: ""
    page: Callable[[Any, Any], str] | None = None
    other_recipes: Mapping[str, Callable[[Any], Recipe]] = field(default_factory=dict)
    # Whether a request for a recipe starts nothing.
    is_done: Callable[[Any, Any], bool] = lambda job, recipe: False
    # The recipes that start when a job is done.
    first: Callable[[Services, Any], Iterable[Recipe]] = lambda services, job: ()
    ended: Callable[[Services, Job], object] = lambda services, job: None
    # Called before a page shows the panel.
    opened: Callable[[Any], object] = lambda job: None
    needs_tensorflow: bool = True
    # Whether users other than the owner of a job may start them.
    is_open: bool = False
    # Whether it has no forms that work without scripts.
    is_json_only: bool = False

    @property
    def tasks(self) -> BackgroundTasks:
        """The tasks that are waiting or running."""
        return services().background[self.name]

    @property
    def endpoint(self) -> str:
        """The name of the blueprint: several types of jobs may have a path."""
        return (
            self.path
            if self.job_type.type in ("dataset", "model")
            else f"{self.path}_of_{self.job_type.type}"
        )

    @cached_property
    def blueprint(self) -> Blueprint:
        """The routes: start, stop and JSON. Features add others, such as a page of results."""
        blueprint = Blueprint(self.endpoint, __name__)
        place = f"/{PLACES[self.job_type.type]}/<job_id>"

        def stop(job_id: str) -> AnyResponse:
            job = services().store.get(job_id, self.job_type)
            check_owner(job)
            key = request.form.get("name", "")
            if not (self.tasks.task(job.id, key) if key else self.tasks.tasks(job.id)):
                raise NotReady(f"No such {self.noun} of “{job.name}” is running.", "It may have finished.")
            self.tasks.stop(job.id, key or None)
            return respond(lambda: self.state(job), created=self._page(job, None), status=202)

        def show_json(job_id: str) -> Response:
            job = services().store.get(job_id, self.job_type)
            return jsonify(self.detail(job, self.state(job)))

        stop.__doc__ = (
            f"Stop the {self.noun} with the ``name``, by default all of the job; results so far are kept."
        )
        show_json.__doc__ = f"Return the state of the current {self.noun}, and the results."
        for path, recipe in {self.path: self.recipe, **self.other_recipes}.items():
            view = self._starting(recipe, "start" if path == self.path else path.replace("-", "_"))
            twin(blueprint, f"{place}/{path}", self.resource)(view)
        twin(blueprint, f"{place}/{self.path}/stop", self.resource)(stop)
        blueprint.get(f"{place}/{self.path}.json")(returns(self.resource)(show_json))
        return blueprint

    def start(self, job: Any, recipe: Recipe) -> AnyResponse:
        """Start the task of ``recipe``; respond with the state, or redirect a form to the `page`.

        Raises NotReady if it is waiting or running.
        """
        key, is_done = self.key(recipe), self.is_done(job, recipe)
        if not is_done:
            task = self.tasks.task(job.id, key)
            if task is not None and not task.is_stopping:
                raise NotReady(
                    f"This {self.noun} of “{job.name}” is already running or waiting.",
                    "Try again when it has finished.",
                )
            self.tasks.start(job, recipe, key)
        return respond(
            lambda: self.state(job, **self.started(job, recipe)),
            created=self._page(job, recipe),
            status=202 if self.tasks.task(job.id, key) else 200,
        )

    def state(self, job: Any, **more: Any) -> Any:
        """Return the state of the tasks of ``job`` with the results; ``more`` are further fields."""
        tasks, fields = self.tasks.tasks(job.id), self.result(job)
        damage = fields.pop("damage", None)
        failure = self.tasks.failure(job.id) or damage
        has_results = (job.folder / self.results).exists()
        state: dict[str, Any] = {"state": "failed" if failure else "done" if has_results else "none"}
        if tasks:
            running = tasks[0].state
            progress = round(100 * running.fraction, 1)
            state = {"state": "running", "progress": progress, "eta_seconds": running.seconds_left}
            state["doing"], failure = running.doing, None
        described = [self._describe(job, task) for task in tasks]
        return self.resource(**state, error=error_of(failure), tasks=described, **fields, **more)

    def panel(self, job: Any) -> Panel:
        """Return the panel on the page of ``job``."""
        self.opened(job)
        return Panel(self, self.state(job), self.choices(job))

    def _starting(self, recipe: Callable[[Any], Recipe], name: str) -> Callable[[str], AnyResponse]:
        def view(job_id: str) -> AnyResponse:
            if self.needs_tensorflow:
                require_tensorflow()
            job = services().store.get(job_id, self.job_type)
            if not self.is_open:
                check_owner(job)
            return self.start(job, recipe(job))

        view.__name__, view.__doc__ = name, recipe.__doc__
        return returns(self.resource)(view) if self.is_json_only else view

    def _page(self, job: Job, recipe: Recipe | None) -> str:
        return self.page(job, recipe) if self.page else f"{job_url(job)}#{self.path}"

    def _describe(self, job: Job, task: BackgroundTask) -> ActivityTask:
        state: Literal["waiting", "running", "stopping"] = (
            "stopping" if task.is_stopping else "waiting" if task.is_waiting else "running"
        )
        return ActivityTask(task.key, self.task_title(job, task.recipe), state)


def error_of(failure: Failure | None) -> TaskError | None:
    """Return the error that pages and JSON show; None without a ``failure``."""
    return TaskError(failure.message, failure.hint, failure.line) if failure else None


def add_activities(app: Flask, activities: Iterable[Activity]) -> None:
    """Add the routes and the tasks of ``activities`` to an application that has its services."""
    app.extensions[_EXTENSION] = tuple(activities)
    for activity in app.extensions[_EXTENSION]:
        app.register_blueprint(activity.blueprint)
        _add_tasks(app.extensions["digits"], activity)


def panels_of(job: Job) -> list[Panel]:
    """Return the panels on the page of ``job``."""
    activities: tuple[Activity, ...] = current_app.extensions[_EXTENSION]
    return [each.panel(job) for each in activities if each.template and isinstance(job, each.job_type)]


def _add_tasks(site: Services, activity: Activity) -> None:
    def report(job: Job, key: str) -> None:
        task, failure = tasks.task(job.id, key), tasks.failure(job.id, key)
        if task is None:
            activity.ended(site, job)
        state = task.state if task else None
        site.live.publish(*live_messages.background(activity.name, job, key, state, failure))

    def start_first(job: Job) -> None:
        if isinstance(job, activity.job_type):
            for recipe in activity.first(site, job):
                tasks.start(job, recipe, activity.key(recipe))

    tasks = BackgroundTasks(site.runner, activity.pool, activity.task_folder, activity.noun, report)
    site.background[activity.name] = tasks
    site.when_done.append(start_first)
