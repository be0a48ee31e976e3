"""The check of reports finds what is broken."""

import html_pages
import pytest


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('<a href="none.html">x</a>', "another file"),
        ('<a href="#none">x</a>', "no such place"),
        ('<img src="https://example.org/x.png" alt="x">', "loads"),
        ('<img src="data:image/png;base64,">', "alt text"),
        ("<script>1</script>", "script"),
        ('<svg role="img" aria-labelledby="a"><title id="a">t</title></svg>', "description"),
        ("<style>@import 'x.css';</style>", "style sheet"),
        ("<p>open", "leaves open"),
    ],
)
def test_the_check_finds_what_is_broken(body, complaint, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(f"<html><body>{body}</body></html>")
    assert any(complaint in problem for problem in html_pages.problems(path))
