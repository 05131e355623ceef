"""What a request asks of the form of models: settings that are filled in, checked, and made to jobs."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from pathlib import Path

from werkzeug.datastructures import MultiDict
from wtforms import BooleanField, Field

from digits.core import pretrained_files, schedules
from digits.core.compute import Compute
from digits.core.errors import BadRequest, DigitsError, NotFound
from digits.core.files import UnreadableFile, write_bytes
from digits.core.job import DeviceRequest
from digits.core.model_job import ModelJob, request_devices
from digits.core.recipe import Train
from digits.core.task import Failure
from digits.data.models.pretrained_catalog import PREFIX
from digits.kinds import kind_named
from digits.kinds.advice.recommendation import (
    Facts,
    Resources,
    Settings,
    facts_of,
    fine_tuning_any,
    recommend,
    refusal,
)
from digits.kinds.forms.fields import NAME_LENGTH, errors_of
from digits.kinds.jobs import DatasetJob
from digits.kinds.standard_networks import Network, every_network, network, networks
from digits.kinds.views import views_of
from digits.runtime.offload import in_thread
from digits.web.jobs.snapshots import snapshot_of
from digits.web.models import network_lint, network_settings
from digits.web.models.form import BALANCES, MAX_NETWORK_CHARACTERS, USUAL, ModelForm
from digits.web.models.form_choices import next_name, offer_datasets
from digits.web.models.network_settings import same, text_of
from digits.web.services import services

# In ``own``: the fields have the settings of another model.
EVERYTHING = "*"
# Keep the demonstration short, whatever the recommended settings.
FIRST_EPOCHS = 5
_CHOICES = ("standard_networks", "initial_weights", "fine_tune")


class Submission:
    """The form of models with the fields that a request has ``sent``, or a new one.

    `complete` and `follow` fill in what is left open: the former for programs, the latter for the page, whose field
    ``own`` lists the fields that were changed by hand, the latest last. `check` adds errors to the fields, and `create`
    makes the jobs.
    """

    def __init__(self, sent: MultiDict[str, str] | None = None) -> None:
        self.sent: MultiDict[str, str] = MultiDict() if sent is None else sent
        self.form = ModelForm(formdata=sent, meta={"data_roots": services().roots})
        self.own = [name for name in self.sent.get("own", "").split(",") if name]
        # Where the settings come from, in a sentence, if not from the recommendation.
        self.source = self.sent.get("source", "")
        # Why the training whose settings these are failed.
        self.failure: Failure | None = None
        self.text = ""
        self.weights: str | None = None
        self.recommendation: Settings | None = None
        self.form.offer_targets(services().clusters.titles)
        offer_datasets(self.form)
        if sent is None and self.form.dataset.choices:
            self.form.dataset.data = self.form.dataset.choices[0].value

    # The dataset is chosen before anything asks for it.
    @cached_property
    def dataset(self) -> DatasetJob | None:
        job = services().store.find(self.form.dataset.data or "")
        return job if isinstance(job, DatasetJob) else None

    @cached_property
    def facts(self) -> Facts | None:
        return facts_of(self.dataset) if self.dataset else None

    @cached_property
    def resources(self) -> Resources:
        """What a training can use: without ImageNet weights if the form does without them."""
        return network_settings.server_resources(from_scratch=bool(self.sent.get("from_scratch")))

    @property
    def standard(self) -> Network | None:
        """The standard network that is chosen, if there is one."""
        return every_network().get(self.form.standard_networks.data or "")

    @property
    def earlier(self) -> ModelJob | None:
        """The model whose network is used, or was customized, if there is one."""
        job = services().store.find(self.form.chosen_model().data or "")
        return job if isinstance(job, ModelJob) else None

    # Filling in

    def complete(self, *, is_recommended: bool = False) -> None:
        """Fill in the fields that a program left out: the best network for the dataset, and the settings for it.

        ImageNet weights must be requested with ``fine_tune``, unless the form ``is_recommended`` as a whole: then the
        facts decide.
        """
        own = {*self.sent} if is_recommended else {*self.sent, "fine_tune"}
        network_settings.apply(self._recommended(own) or {}, self.form, own)
        if is_recommended:
            self.form.model_name.data = self.form.model_name.data or self._suggested_name()

    def follow(self) -> None:
        """Fill in the fields that were not changed by hand: they follow the recommendation for what is chosen."""
        form, facts = self.form, self.facts
        self.own = [name for name in self.own if self._was_changed(name)]
        self._choose_devices()
        if facts:
            self._choose_network(facts)
            if EVERYTHING not in self.own:
                self.recommendation = self._recommended(self.own)
        if self.recommendation:
            solver = (
                form.solver_type.data if "solver_type" in self.own else self.recommendation["solver_type"]
            )
            is_usual = solver == self.recommendation["solver_type"]
            usual = {} if is_usual else {name: f"{value:g}" for name, value in USUAL[solver].items()}
            filled = {**self.recommendation, **usual}
            network_settings.apply(filled, form, self.own)
            unchanged = [name for name, text in filled.items() if same(text_of(form[name]), text)]
            self._disown(*(name for name in unchanged if name not in _CHOICES))
        if (form.model_name.data or "").strip() in ("", self._suggested_name()):
            self._disown("model_name")
        if self.names_itself:
            form.model_name.data = self._suggested_name()

    def copy(self, job_id: str) -> None:
        """Fill in the configuration and the network of another model."""
        form, job = self.form, services().store.get(job_id, ModelJob)
        form.fill(job)
        text, weights = job.network_text(), job.recipe.weights or ""
        source = trained_by(weights)
        standard = next((item for item in every_network().values() if item.text == text), None)
        form.set(custom_network=text, custom_network_snapshot=weights)
        if source and source.network_text() == text:
            form.set(method="previous", previous_networks=source.id)
        elif standard and (not weights or weights.startswith(PREFIX)):
            form.set(method="standard", standard_networks=standard.id, custom_network_snapshot="")
            form.set(initial_weights="imagenet" if weights else "random")
        elif standard and standard.pretrained:
            form.set(method="standard", standard_networks=standard.id, initial_weights="file")
        else:
            form.set(method="custom", previous_networks=job.id)
        self.own, self.failure = [EVERYTHING], job.failure
        self.source = f"With the settings of “{job.name}”."
        offer_datasets(form)

    @property
    def names_itself(self) -> bool:
        """Whether the name is a suggestion, which follows the form."""
        return not {"model_name", EVERYTHING} & {*self.own}

    def _disown(self, *names: str) -> None:
        self.own = [name for name in self.own if name not in names]

    def _was_changed(self, name: str) -> bool:
        """Return whether a field of ``own`` was shown and changed by hand; boxes are sent only if ticked."""
        if name == "fine_tune":
            return "head_epochs" in self.sent
        is_box = name in self.form and isinstance(self.form[name], BooleanField)
        return name == EVERYTHING or name in self.sent or is_box

    def _choose_devices(self) -> None:
        """Let the choice of GPUs exclude the others, and the other way round."""
        form, last = self.form, next(iter(self.own[-1:]), "")
        if last == "select_gpus" and form.select_gpus.data:
            form.select_gpu.data = ""
        elif last in ("select_gpu", "select_gpus"):
            form.set(select_gpus="", select_gpu=form.select_gpu.data or "next")

    def _choose_network(self, facts: Facts) -> None:
        """Replace a network that cannot be used; weights that were chosen by hand belong to the chosen network."""
        form, chosen, best = self.form, self.standard, recommend(facts, self.resources)
        if best is None:
            form.method.data = "custom" if form.method.data == "standard" else form.method.data
        elif not chosen or facts.kind not in chosen.kinds or refusal(chosen, facts, self.resources):
            form.standard_networks.data = best.network
            self._disown(*_CHOICES)
        elif form.method.data == "standard":
            if not chosen.pretrained:
                self._disown("initial_weights", "fine_tune")
            if {"initial_weights", "fine_tune"} & {*self.own}:
                self.own.append("standard_networks")
            elif chosen.id == best.network:
                self._disown("standard_networks")

    def _recommended(self, own: Collection[str]) -> Settings | None:
        """Choose the best network unless it is in ``own``; return the recommended settings for what is chosen."""
        form, facts, available = self.form, self.facts, self.resources
        if facts is None:
            return None
        tuned = bool(form.fine_tune.data) if "fine_tune" in own else None
        if form.method.data == "standard":
            initial = form.initial_weights.data if "initial_weights" in own else ""
            if initial and tuned is None:
                tuned = initial != "random"  # pretrained weights are rarely used without fine-tuning
            name = form.standard_networks.data or "" if "standard_networks" in own else ""
            best = recommend(facts, available, name, tuned)
            if best is None or name not in ("", best.network):
                return None
            form.standard_networks.data = best.network
            chosen = {"initial_weights": initial} if initial else {}
            return network_settings.default_settings() | best.settings | chosen
        if form.method.data == "custom":
            base = self.sent.get("customized", "")
            tuned = bool(form.custom_network_snapshot.data) if tuned is None else tuned
        else:
            base = form.standard_networks.data or "" if "own" in self.sent else ""
        best = recommend(facts, available, base, tuned) if base in networks([facts.kind]) else None
        changes = best.settings if best else fine_tuning_any(facts) if tuned else {}
        settings = network_settings.default_settings() | changes
        return {name: text for name, text in settings.items() if name != "initial_weights"}

    def _suggested_name(self) -> str:
        """Return a name for the model, from the names of its network and its dataset; "" without either."""
        dataset, earlier = self.dataset, self.earlier
        titles = {"standard": self.standard.title if self.standard else "", "custom": "My network"}
        title = titles.get(self.form.method.data, earlier.name.split(" on ")[0] if earlier else "Network")
        name = f"{title} on {dataset.name}"[:NAME_LENGTH] if title and dataset else ""
        is_taken = earlier is not None and self.form.method.data not in titles and name == earlier.name
        return next_name(name) if is_taken else name

    def rates(self) -> list[list[float]]:
        """Return the learning rates after 0, 1, … 100% of the training, for each rate of a sweep.

        The form must have been validated. Raises BadRequest if a field that determines them is invalid.
        """
        form = self.form
        head_fields = ("head_epochs", "head_rate", "train_epochs") if form.fine_tune.data else ()
        policy_fields = [field.name for field in form if field.name.startswith(f"lr_{form.lr_policy.data}_")]
        for name in ("learning_rate", "lr_policy", *policy_fields, "lr_warmup", *head_fields):
            if form[name].errors:
                raise BadRequest(f"{form[name].label.text}: {form[name].errors[0]}")
        try:
            head = (
                (form.head_rate.data, form.head_epochs.data / form.train_epochs.data) if head_fields else ()
            )
            return schedules.preview(form.policy(), form.learning_rate.data, *head)
        except (ValueError, TypeError, OverflowError) as error:
            raise BadRequest(f"The schedule cannot be drawn: {error}") from error

    # Checking

    def check(self) -> dict[str, list[str]]:
        """Add errors to the fields, and return them by field; find the network and the weights to start from.

        The scheduler of a cluster is asked last, about a form that is otherwise valid.
        """
        form = self.form
        form.validate()
        self.text, self.weights = self._network()
        is_in_text = form.method.data == "custom" and calls_pretrained(self.text)
        if form.fine_tune.data and not self.weights and not is_in_text and not errors_of(form):
            _blame(
                form.fine_tune, "Choose initial weights: ImageNet, a file, or a snapshot of an earlier model."
            )
        self._check_kind()
        if not errors_of(form):
            services().clusters.check_target(form, self.devices)
        return errors_of(form)

    @property
    def devices(self) -> DeviceRequest:
        return request_devices(self.form.device(), self.form.compute())

    def network_folder(self, text: str) -> Path | None:
        """Return the folder with the files that the network ``text`` may load by a relative path.

        It is that of the chosen model, whose network may have been customized, else that of the model that saved the
        initial weights.
        """
        if self.form.method.data == "standard" or not calls_pretrained(text):
            return None
        job = self.earlier or trained_by(self.form.custom_network_snapshot.data)
        return job.folder if job else None

    def _network(self) -> tuple[str, str | None]:
        """Return the network's text and the weights to start from. Errors are added to the fields."""
        form = self.form
        if form.method.data == "custom":
            text = (form.custom_network.data or "").replace("\r\n", "\n")
            is_read = text.strip() and len(text) <= MAX_NETWORK_CHARACTERS  # or it has an error
            for fault in network_lint.check(text)[:1] if is_read else []:
                _blame(
                    form.custom_network, f"Line {fault['line']}: {fault['message']} {fault['hint']}".strip()
                )
            return text, form.custom_network_snapshot.data or None
        if form.method.data in ("previous", "pretrained"):
            return self._network_of_model()
        try:
            standard = network(form.standard_networks.data or "lenet")
        except NotFound as error:
            _blame(form.standard_networks, error.message)
            return "", None
        facts = self.facts
        if facts and facts.kind not in standard.kinds:
            titles = ", ".join(item.title for item in networks([facts.kind]).values())
            kind = kind_named(facts.kind).title.lower()
            _blame(
                form.standard_networks,
                f"{standard.title} is not a network for {kind}. Choose one of: {titles}.",
            )
        elif facts and (reason := refusal(standard, facts, self.resources)):
            _blame(form.standard_networks, f"{standard.title} cannot be trained on this dataset. {reason}")
        return standard.text, self._weights_of_standard(standard)

    def _weights_of_standard(self, chosen: Network) -> str | None:
        """Return the initial weights of a standard network; None for random ones."""
        form, file = self.form, self.form.custom_network_snapshot
        if file.data and "initial_weights" not in self.sent:
            form.set(initial_weights="file")
        elif self.sent.get(file.name) and form.initial_weights.data != "file":
            _blame(file, "Set initial_weights=file, or omit this field.")
        if form.initial_weights.data == "file":
            if not file.data:
                _blame(file, "Enter the path of a weights file, or upload one.")
            return file.data or None
        if form.initial_weights.data != "imagenet":
            return None
        if not chosen.pretrained:
            having = ", ".join(item.title for item in every_network().values() if item.pretrained)
            _blame(
                form.initial_weights,
                f"There are no ImageNet weights of {chosen.title}. Choose one of: {having}.",
            )
            return None
        return f"{PREFIX}{chosen.pretrained}"

    def _network_of_model(self) -> tuple[str, str | None]:
        """Return the network of the chosen model, and the weights of its chosen snapshot or those in the file.

        Without either, the weights of an imported model are those that were imported, and of other models random.
        """
        field, file, job = self.form.chosen_model(), self.form.custom_network_snapshot, self.earlier
        if job is None:
            _blame(field, "Choose one of the models.")
            return "", None
        try:
            text = job.network_text()
        except UnreadableFile as error:
            _blame(field, f"The network of “{job.name}” cannot be read: {error}.")
            return "", None
        epoch = self.sent.get(f"{job.id}-snapshot")
        if epoch and self.sent.get(file.name):
            _blame(file, f"Specify either this file or {job.id}-snapshot.")
        if not epoch and file.data:
            return text, file.data
        try:
            if epoch is None and self.form.method.data == "pretrained":
                return text, str(job.folder / snapshot_of(job, None).name)
            return text, weights_of(job, epoch or "")
        except DigitsError as error:
            _blame(field, error.sentences)
            return text, None

    def _check_kind(self) -> None:
        """Add errors for settings that are not available for the dataset's kind; turn off those that were not sent."""
        form, dataset = self.form, self.dataset
        if dataset is None:
            return
        views, kind = views_of(dataset.data_kind), dataset.data_kind.title.lower()
        for field in form.keep_transformations(views.transformations):
            if field.name in self.sent and not field.errors:
                _blame(field, f"Not available for {kind}. Omit this setting.")
        if form.balance.data not in views.balancing and not form.balance.errors:
            words = " or ".join(str(choice.label) for choice in BALANCES if choice.value in views.balancing)
            _blame(form.balance, f"Not available for {kind}. Choose {words}.")

    # Making jobs

    def recipe(self, dataset: DatasetJob, size: int | None, rate: float) -> Train:
        """Return the recipe of the form, which must be valid, with a batch ``size`` and a learning ``rate``."""
        return self.form.recipe(str(dataset.folder), self.weights, size, rate, services().weights_places)

    def create(self, owner: str | None) -> list[ModelJob]:
        """Create and submit a model, or one for each pair of swept values; the form must be valid."""
        form = self.form
        dataset = services().store.get(form.dataset.data, DatasetJob)
        folder = self.network_folder(self.text)
        with services().store.creation() as new_folder:
            jobs = [
                new_model(
                    new_folder(),
                    dataset,
                    self.recipe(dataset, size, rate),
                    name,
                    text=self.text,
                    network_folder=folder,
                    device=form.device(),
                    compute=form.compute(),
                    owner=owner,
                    group=(form.group_name.data or "").strip(),
                )
                for name, size, rate in form.sweep()
            ]
            services().scheduler.submit(*jobs)
        return jobs


def new_model(
    folder: Path,
    dataset: DatasetJob,
    recipe: Train,
    name: str,
    *,
    text: str,
    network_folder: Path | None = None,
    compute: Compute = Compute(),  # noqa: B008 (immutable)
    **fields: str | None,
) -> ModelJob:
    """Create a job in ``folder`` that trains a network with source code ``text`` on ``dataset``.

    ``network_folder`` contains the `pretrained_files` to which the network refers, if any. ``fields`` are other ones of
    the job: its device, owner and group.
    """
    in_thread(write_bytes, folder / recipe.network, text.encode())
    if network_folder:
        pretrained_files.link(network_folder, folder)
    return ModelJob.create(folder, dataset_id=dataset.id, recipe=recipe, name=name, compute=compute, **fields)


def first_model(folder: Path, dataset: DatasetJob) -> ModelJob:
    """Create a job in ``folder`` that trains the recommended network for ``dataset`` briefly, with the same owner."""
    best = network_settings.recommended(dataset)
    assert best, f"there are networks for {dataset.data_kind.name}"
    recipe = network_settings.recommended_recipe(best, str(dataset.folder), services().weights_places)
    recipe.epochs = min(recipe.epochs, FIRST_EPOCHS)
    chosen = network(best.network)
    name = f"{chosen.title} on {dataset.name}"
    return new_model(folder, dataset, recipe, name, text=chosen.text, device="next", owner=dataset.owner)


def trained_by(weights: str | None) -> ModelJob | None:
    """Return the model of this server that saved the snapshot ``weights``."""
    folder = Path(weights).parent if weights else None
    job = services().store.find(folder.name) if folder else None
    return job if isinstance(job, ModelJob) and job.folder == folder else None


def weights_of(job: ModelJob, epoch: str) -> str | None:
    """Return the weights that ``epoch`` names as in DIGITS 6: an epoch, or -1 for those that ``job`` started from.

    For 0 or an empty text, return None: random ones. Raises DigitsError if there are no such weights.
    """
    # Imported models without an epoch have a snapshot of epoch 0.
    if not epoch or (epoch == "0" and services().snapshots_of(job).of_epoch(0) is None):
        return None
    if epoch == "-1" and not job.recipe.weights:
        raise BadRequest(f"“{job.name}” started from random weights.", "Choose one of its snapshots, or 0.")
    return job.recipe.weights if epoch == "-1" else str(job.folder / snapshot_of(job, epoch).name)


def calls_pretrained(text: str) -> bool:
    return "digits.pretrained(" in text


def _blame(field: Field, message: str) -> None:
    field.errors = [*field.errors, message]
