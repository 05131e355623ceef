"""``digits labels`` against a running server."""

from __future__ import annotations

from click.testing import CliRunner, Result

from digits.cli.commands import digits
from digits.runtime.offload import in_thread
from digits.web.server.http import Server
from tests.site import Site, bars


def test_labels_are_started_listed_and_frozen(site: Site) -> None:
    folder = bars(site.data / "bars", each=12)
    server = Server(site.app, ("127.0.0.1", 0))
    server.start()

    def labels(*words: str) -> Result:
        arguments = ["labels", "--server", f"http://127.0.0.1:{server.port}", *words]
        return in_thread(lambda: CliRunner().invoke(digits, arguments))

    try:
        created = labels("create", "mine", str(folder), "--class", "left", "--class", "other")
        assert created.exit_code == 0, created.output
        job = created.output.strip()
        assert [item.name for item in site.api.labels(job).classes] == ["left", "other"]
        listed = labels("list", "mine")
        assert listed.output == f"{job}  mine  (36 images · 2 classes)\n"
        assert labels("list", "nothing").output == ""

        empty = labels("freeze", job, "first")
        assert empty.exit_code == 1 and "No training image is labeled yet" in empty.output
        for image in site.api.label_images(job):
            site.api.save_label(job, image.n, image.rev, label=int("left" not in image.path))
        frozen = labels("freeze", job, "first", "--width", "16", "--height", "16")
        assert frozen.exit_code == 0, frozen.output
        assert site.api.dataset(frozen.output.split()[-1]).frozen.id == job

        begun = labels("create", "begun", str(folder), "--folders-are-classes").output.strip()
        assert site.api.labels(begun).states["labeled"] == 36

        again = labels("create", "again", "--dataset", frozen.output.split()[-1]).output.strip()
        assert site.api.labels(again).folder == str(folder)
        assert [item.name for item in site.api.labels(again).classes] == ["left", "other"]
        assert site.api.labels(again).states["labeled"] == 36

        refused = labels("create", "mine", "/etc", "--kind", "images/detection")
        assert refused.exit_code == 1 and "outside the folders" in refused.output
    finally:
        server.stop()


def test_a_server_that_cannot_be_reached_is_named() -> None:
    silent = CliRunner().invoke(digits, ["labels", "--server", "http://127.0.0.1:9", "list"])
    assert silent.exit_code == 1 and "does not respond" in silent.output
    wrong = CliRunner().invoke(digits, ["labels", "--server", "file:///etc", "list"])
    assert wrong.exit_code == 2 and "starts with http" in wrong.output
