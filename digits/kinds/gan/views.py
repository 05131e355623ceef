"""Pages and JSON of images for GANs."""

from __future__ import annotations

from typing import Any

from digits.data.manifest import Manifest
from digits.data.records.records import Record
from digits.data.sources.plan import count_of
from digits.kinds import views
from digits.kinds.gan.recipe import CreateGan


class Views(views.Views[CreateGan]):
    """Images, with attributes if there are any, and generated images."""

    group = "rarest attribute"
    groups = "rarest attributes"
    distribution = ""
    balancing = ("none",)
    checks_counts = False
    guide = "gan.md"
    invitation = (
        "Generate new images like those in a folder, from random vectors. For conditional networks, "
        "an attributes file such as that of CelebA adds attributes."
    )
    infer_title = "Predict"
    result = "The output appears here."

    def describe_dataset(self, manifest: Manifest) -> str:
        names = manifest.target.names
        return count_of(len(names), "attribute") if names else "images to generate"

    def describe_record(self, manifest: Manifest, record: Record) -> str:
        return super().describe_record(manifest, record) if manifest.target.names else "no attributes"

    def dataset_json(self, manifest: Manifest) -> dict[str, Any]:
        return {"attributes": manifest.target.names}
