"""Text classification over HTTP, from the form to the classes of a text."""

from __future__ import annotations

import io
import random
from html import escape
from pathlib import Path

import pytest

from digits.data.manifest import SKIPPED_FILE
from tests.kinds.dataset_forms import Forms
from tests.site import Site

WORDS = {
    "animal": ("dog", "cat", "horse", "sparrow", "whale"),
    "number": ("one", "twelve", "thirty", "hundred", "zero"),
    "<i>place</i>": ("village", "river", "city", "mountain", "lake"),
}


def write_table(folder: Path) -> Path:
    """Write texts of three classes, whose words differ."""
    chance = random.Random(0)
    names = list(WORDS)
    rows = ["class,title,text"]
    for number in range(240):
        label = names[number % 3]
        words = chance.choices(WORDS[label], k=5)
        rows.append(f'{label},{words[0].title()},"{", ".join(words[1:])}"')
    path = folder / "topics.csv"
    path.write_text("\n".join(rows))
    return path


KIND = "text/classification"


@pytest.mark.tensorflow
def test_a_table_becomes_a_model_that_classifies_texts(site: Site) -> None:
    table = write_table(site.data)
    dataset = site.create(KIND, train_data_file=table, max_chars_per_sample=48)
    body = site.json(f"/datasets/{dataset}.json")
    assert body["labels"] == ["<i>place</i>", "animal", "number"]
    page = site.get(f"/datasets/{dataset}").text
    assert "Training texts" in page and "mean-image" not in page
    assert "3 classes of texts · 240 texts" in site.get("/").text
    explored = site.get(f"/datasets/{KIND}/explore?job_id={dataset}&label=1&size=100").text
    assert 45 < explored.count('<blockquote class="snippet"') < 75
    assert "sparrow" in explored and "mountain" not in explored and "<i>place" not in explored

    settings = {"train_epochs": 8, "learning_rate": 0.005, "batch_size": 16, "shuffle": "y"}
    model = site.train(KIND, dataset, **settings)
    predicted, part = site.follow(model)
    assert f"{escape(predicted[0][0][0])} {predicted[0][0][1]:.0f}%" in part and "snippet" in part
    assert site.json(f"/models/{model}/metrics.json")["val"]["values"]["accuracy"][-1] > 0.8
    page = site.get(f"/models/{model}").text
    assert '<textarea class="input" id="snippet" name="snippet"' in page and "image-file" not in page

    answer, part = site.predict(KIND, model, snippet="Whale, horse,\ndog and CAT")
    assert answer["predictions"][0][0] == "animal"
    assert sum(percent for _, percent in answer["predictions"]) == pytest.approx(100, abs=0.01)
    assert "&lt;i&gt;place" in part and "<i>" not in part
    options = {"view_extension_id": "text-classification", "max_classes": 2}
    view = site.predict(KIND, model, snippet="A Cat", **options)[0]["view"]
    assert (view["text"], len(view["classes"])) == ("a cat", 2)
    long, _ = site.predict(KIND, model, snippet="twelve zero hundred " * 1000)
    assert long["predictions"][0][0] == "number"
    infer = "/models/images/generic/infer_extension"
    listed = site.data / "listed.csv"
    listed.write_text('class,text\nanimal,"whale, horse"\n,twelve zero hundred\na river\n')
    with open(listed, "rb") as file:
        for sent in (str(listed), (file, "listed.csv")):
            outputs = site.post(f"{infer}.json", job_id=model, test_data_file=sent).get_json()["outputs"]
            best = [max(range(3), key=found["output"].__getitem__) for found in outputs.values()]
            assert (list(outputs), best) == (["0", "1", "2"], [1, 2, 0])
    asked = {"job_id": model, "test_data_file": str(listed), "num_test_images": 2}
    address = site.post(f"{infer}.json", **asked).get_json()["url"]
    page = site.get(address).text
    assert "2 texts" in page and f"{address}/images/" not in page
    assert "whale, horse" in page and 'class="badge badge-plain' in page  # the text and its true class

    lines = (io.BytesIO(b"A whale, a dog\n\nzero, <b>one</b>\n"), "lines.txt")
    many = f"/models/{model}/predictions.json"
    address = site.post(many, text_list_file=lines).get_json()["url"]
    found = site.wait(lambda: (body := site.json(f"{address}.json"))["state"] == "done" and body)
    assert [(row["image"], row["predictions"][0][0]) for row in found["results"]] == [
        ("A whale, a dog", "animal"),
        ("zero, <b>one</b>", "number"),
    ]
    top = site.get(f"{address}?show=top").text
    assert "A whale, a dog" in top and "<b>one" not in top and "Texts per class" in top
    refused = site.post(many)
    assert refused.status_code == 400 and "contains no texts" in refused.get_json()["error"]["message"]
    page = site.get(f"/models/{model}").text
    assert "Predict from many texts" in page and 'name="text_list_file"' in page
    for sent, words in (
        (str(site.data / "no.csv"), "no.csv"),
        ((io.BytesIO(b"\xff\xfe"), "a.csv"), "line 1: not UTF-8 text"),
        ((io.BytesIO(b"\n"), "a.csv"), "contains no"),
    ):
        refused = site.post(f"{infer}.json", job_id=model, test_data_file=sent)
        assert refused.status_code == 400 and words in str(refused.get_json()["error"]), refused.text
    url = f"/models/{KIND}/infer_one.json"
    refused = site.post(url, job_id=model, snippet=" \n", image_path=str(table))
    assert refused.status_code == 400 and "Enter a text." in refused.get_json()["error"]["message"]


@pytest.fixture
def forms(tmp_path: Path) -> Forms:
    return Forms("text-classification", tmp_path / "data")


def test_invalid_fields_are_refused_with_reasons(forms: Forms) -> None:
    one = forms.data / "one.txt"
    one.write_text("only\n")
    invalid = {"train_data_file": forms.data / "nothing.csv", "class_labels_file": one, "alphabet": "abca"}
    invalid |= {"max_chars_per_sample": 0, "encoding": "jpg", "pct_test": 40}
    errors = forms.errors(**invalid, pct_val=60)
    assert set(errors) == set(invalid)
    assert errors["alphabet"] == ["The alphabet contains “a” more than once."]
    assert "fewer than two classes" in errors["class_labels_file"][0]


def test_the_source_is_summarized_with_its_classes_and_invalid_lines(forms: Forms) -> None:
    table = write_table(forms.data).rename(forms.data / "train.csv")
    (forms.data / "test.csv").write_text(table.read_text())
    table.write_text(table.read_text() + "\nanimal\n")
    found = forms.summary(train_data_file=table, max_chars_per_sample=20)
    assert found.facts[0] == "240 texts in 3 classes."
    assert found.problems == [
        "1 line of train.csv cannot be used: line 242: the text is missing. Correct or remove them."
    ]
    assert found.table_head == ["class (class)", "title (text)", "text (text)"]
    assert len(found.table) == 5 and found.table[0][0] == "animal"
    assert found.bars == [("<i>place</i>", 80), ("animal", 80), ("number", 80)]
    assert found.suggestion and found.suggestion.text == "Found test.csv for test, beside train.csv."

    made = forms.create(train_data_file=table, max_chars_per_sample=48)
    assert made.manifest.skipped == 1
    skipped = (made.folder / SKIPPED_FILE).read_text().splitlines()
    assert skipped[1:] == ['"train.csv, line 242",the text is missing,train,']
