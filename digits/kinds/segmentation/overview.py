"""Summarize pairs of images and label images for the form: the classes, from a few label images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from digits.data.images import images
from digits.data.images.frames import Frame, words
from digits.data.images.images import UnusableImage, reason_of
from digits.data.images.mask_fit import MaskFits, frame_of
from digits.data.images.masks import Code, MaskSurvey, open_mask
from digits.data.records.features import ExampleFeatures
from digits.data.records.files import RecordFiles
from digits.data.sources.causes import Causes
from digits.data.sources.plan import ImageSource, NoProgress, UnusableSource, count_of, listed, show
from digits.data.tables.tables import Row
from digits.kinds.forms import summary as source_summary
from digits.kinds.forms.summary import MAX_SAMPLE_BYTES, SAMPLE_IMAGES, SourceSummary, Suggestion
from digits.kinds.forms.target_image_summary import sampled_files, spread
from digits.kinds.segmentation.annotated import AnnotatedClasses, AnnotatedImages
from digits.kinds.segmentation.pairing import ClassFolders, CombinedMasks, describe_overlap
from digits.kinds.segmentation.reader import TARGET, find_classes, read_class_files
from digits.kinds.segmentation.recipe import CreateSegmentation
from digits.kinds.sources.target_image_recipe import TargetImageFolders
from digits.kinds.sources.target_image_records import TargetImageMapping
from digits.kinds.sources.target_image_tables import TargetImageRows
from digits.kinds.sources.target_images import FoundTargetImages

# Masks of another size fit if most of the last records have such masks.
_COMPARED = 30


class Overview:
    """Describes the label images of a ``recipe``."""

    def __init__(self, recipe: CreateSegmentation) -> None:
        self._recipe = recipe
        self._annotations = AnnotatedClasses(recipe.class_labels_file)

    def find_annotations(self, folders: TargetImageFolders) -> AnnotatedImages:
        """Return the images of annotations and their objects; raises UnusableSource."""
        annotated = self._annotations.find(folders, Path(folders.targets), NoProgress())
        annotated.need(TARGET)
        return annotated

    def describe(self, images: FoundTargetImages, summary: SourceSummary) -> None:
        """Add the classes in a sample of the label images, and their problems; raises UnusableSource."""
        if isinstance(images, ClassFolders):
            self._annotations.indexes.update(images.indexes)
        self._describe(images.images, images.target_images, spread(images, SAMPLE_IMAGES), summary)

    def describe_rows(self, table: TargetImageRows, rows: list[Row[str]], summary: SourceSummary) -> None:
        """Like `describe`, for the label images in ``rows`` of a table; raises UnusableSource."""
        names = [(row.file, row.value or "") for row in rows]
        self._describe(table.image_source, table.target_images, names, summary)

    def _describe(
        self, sources: ImageSource, masks: ImageSource, pairs: list[tuple[str, str]], summary: SourceSummary
    ) -> None:
        names, code = read_class_files(self._recipe.class_labels_file, self._recipe.colormap_file)
        surveys: list[tuple[str, MaskSurvey]] = []
        frames: list[tuple[str, Frame]] = []
        broken = Causes()
        for name, mask_name in pairs:
            try:
                data = masks.read(mask_name)
                if len(data) > MAX_SAMPLE_BYTES:
                    continue
                mask = open_mask(data)
                surveys.append((mask_name, code.survey(mask)))
                frames.append((mask_name, frame_of(sources, name, mask)))
            except (UnusableImage, OSError) as error:
                broken.add(show(mask_name), reason_of(error))
        fits = MaskFits.of([frame for _, frame in frames])
        for mask_name, frame in frames:
            if not fits.fits(frame):
                broken.add(show(mask_name), f"{words(frame.stated)} instead of {words(frame.size)} pixels")
        summary.facts += fits.notes
        if broken.count:
            summary.problems.append(
                f"{count_of(broken.count, TARGET)} of those examined cannot be used: {broken.describe()}. "
                f"Their images are skipped. {broken.remedy}"
            )
        surveyed = [survey for _, survey in surveys]
        if isinstance(masks, CombinedMasks):
            summary.problems += filter(None, [describe_overlap(surveyed)])
        _describe_classes(surveyed, names, code, self._annotations, summary)


class CocoOverview(source_summary.Overview):
    """The images of annotations and their objects, which ``overview`` describes."""

    def __init__(
        self, overview: Overview, folders: TargetImageFolders, note: str, suggestion: Suggestion | None
    ) -> None:
        super().__init__(suggestion)
        self.start.facts += filter(None, [note])
        self._overview, self._folders = overview, folders
        self._found: AnnotatedImages

    def summaries(self) -> Iterator[SourceSummary]:
        """Yield that the annotations are read, and their summaries."""
        yield SourceSummary(["Reading the annotations…"], suggestion=self.start.suggestion, finished=False)
        yield from super().summaries()

    def read(self) -> Iterator[int]:
        self._found = found = self._overview.find_annotations(self._folders)
        objects = count_of(sum(map(len, found.masks.forms.values())), "object")
        images_found = count_of(len(found.matches.names), "image")
        self.start.facts.insert(0, f"{found.masks.title} annotations: {images_found} with {objects}.")
        self.start.problems += found.notes
        self._overview.describe(found, self.start)
        yield len(found.matches.names)

    def conclude(self) -> tuple[str, list[str]]:
        return sampled_files(self._found)


class RecordOverview(TargetImageMapping):
    """The masks in TFRecord files, and their description."""

    def __init__(self, recipe: CreateSegmentation, files: RecordFiles, first: ExampleFeatures) -> None:
        super().__init__(recipe, files, first)
        self._names, self._code = read_class_files(recipe.class_labels_file, recipe.colormap_file)
        self._surveys: list[MaskSurvey] = []
        self._frames: list[Frame] = []

    def check(self, features: ExampleFeatures) -> None:
        """Survey the mask of a record; raises ValueError with a message."""
        self.read(features)
        assert self.target is not None
        mask = open_mask(self.target.encoded(features))
        survey = self._code.survey(mask)
        size, turn = images.upright_size_and_turn_of(self.image.encoded(features))
        frame = Frame("", mask.size, size, turn)
        self._frames = [*self._frames[-_COMPARED:], frame]
        if not MaskFits.of(self._frames).fits(frame):
            raise UnusableImage(
                f"“{show(self.target.name)}” has {words(mask.size)} instead of {words(size)} pixels"
            )
        self._surveys.append(survey)

    def describe(self, summary: SourceSummary) -> None:
        """Add the classes of the masks."""
        try:
            _describe_classes(self._surveys, self._names, self._code, AnnotatedClasses(), summary)
        except UnusableSource as error:
            summary.problems.append(error.sentences)


def _describe_classes(
    surveys: list[MaskSurvey],
    names: list[str],
    code: Code,
    annotations: AnnotatedClasses,
    summary: SourceSummary,
) -> None:
    """Add the classes of the surveyed label images to ``summary``; raises UnusableSource."""
    classes = find_classes(surveys, names, code, annotations)
    summary.facts.append(f"{count_of(len(classes.names), 'class')}: {listed(classes.names)}.")
    summary.facts += classes.remarks()
    counts = Counter(
        classes.names[index]
        for survey in surveys
        for index, share in enumerate(classes.shares(survey).tolist())
        if share
    )
    title = f"Images per class, of {len(surveys)} examined"
    summary.set_bars(title, [(name, counts[name]) for name in classes.names])
