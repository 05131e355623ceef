"""Pages of lists, and the URL arguments that select them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from digits.web.jobs.query import MAX_PER_PAGE, PER_PAGE, JobQuery, Page, page_of, per_page_of

ITEMS = st.lists(st.integers(), max_size=60)
SIZES = st.integers(1, 20)


@given(ITEMS, SIZES)
def test_all_pages_together_are_the_list(items: list[int], size: int) -> None:
    first = Page.of(items, 1, size)
    pages = [Page.of(items, number, size) for number in range(1, first.count + 1)]
    assert [item for page in pages for item in page.items] == items
    assert all(page.items or not items for page in pages)
    assert [page.last - page.first + 1 if items else 0 for page in pages] == [
        len(page.items) for page in pages
    ]


@given(ITEMS, SIZES, st.integers(1, 100))
def test_a_page_after_the_last_one_is_the_last_one(items: list[int], size: int, number: int) -> None:
    page = Page.of(items, number, size)
    assert page.number == min(number, page.count)
    assert page.items == items[page.first - 1 : page.last] if items else not page.items


@given(st.integers(1, 100), st.integers(1, 100))
def test_links_lead_to_the_first_the_last_and_the_near_pages(number: int, count: int) -> None:
    page = Page.of(range(count), number, 1)
    links = page.links
    numbers = [link for link in links if link is not None]
    assert {1, page.number, count} <= set(numbers) <= set(range(1, count + 1))
    assert numbers == sorted(set(numbers))
    assert len(links) <= 9
    for before, after in itertools.pairwise(links):
        assert before is None or after in (None, before + 1)
    # A gap stands for at least two pages.
    for place, link in enumerate(links):
        assert link is not None or links[place + 1] - links[place - 1] > 2  # type: ignore[operator]


@given(st.text(max_size=30))
def test_any_page_number_is_accepted_or_ignored(text: str) -> None:
    assert page_of({"page": text}) >= 1
    assert 1 <= per_page_of({"per_page": text}) <= MAX_PER_PAGE


def test_page_numbers_are_limited() -> None:
    assert page_of({}) == page_of({"page": "-3"}) == page_of({"page": "x"}) == 1
    assert page_of({"page": "9" * 5000}) == 1
    assert (per_page_of({}), per_page_of({"per_page": "0"})) == (PER_PAGE, 1)
    assert per_page_of({"per_page": "100000"}) == MAX_PER_PAGE


@given(
    st.text(max_size=300),
    st.sampled_from(["name", "bytes", "nothing", ""]),
    st.sampled_from(["asc", "desc", ""]),
)
def test_a_query_survives_its_own_url(words: str, sort: str, direction: str) -> None:
    query = JobQuery.parse({"q": words, "sort": sort, "dir": direction})
    assert JobQuery.parse(query.arguments()) == query
