"""Python 2 statements are converted to Python 3, line by line."""

from __future__ import annotations

import pytest

from digits.core.network.python2_statements import translate

STATEMENTS = {
    "print": "print()",
    "print 'a', x  # why": "print('a', x)  # why",
    "print x,": 'print(x, end=" ")',
    "print >>sys.stderr, 'a', x": "print('a', x, file=sys.stderr)",
    "if x: print x; y = 1": "if x: print(x); y = 1",
    "print ('%d' % x), (1,\n  2)": "print(('%d' % x), (1,\n  2))",
    "try: pass\nexcept (A, B), e: print e": "try: pass\nexcept (A, B) as e: print(e)",
    "raise ValueError, 'no %d' % x": "raise ValueError('no %d' % x)",
    "exec 'y = 1'": "exec('y = 1')",
    "x = 10L + 0xffL + 0777": "x = 10 + 0xff + 0o777",
    "x = 0 <> 0.5 + 1e07, `y` # 10L <> `x`": "x = 0 != 0.5 + 1e07, repr(y) # 10L <> `x`",
    'x = ur\'10L\' + ur"""<>\n0777"""': 'x = r\'10L\' + r"""<>\n0777"""',
    "if x:\n\tif y:\n            print y": "if x:\n        if y:\n            print(y)",
}


@pytest.mark.parametrize("old", STATEMENTS)
def test_a_statement_is_converted(old: str) -> None:
    assert translate(old + "\n") == STATEMENTS[old] + "\n"
    compile(STATEMENTS[old], "network.py", "exec")


@pytest.mark.parametrize(
    "text",
    [
        "print('a', end='')",
        "print(('a' % 1))",
        "print = 3",
        "x = {'print': print}",
        "raise ValueError('a, b')",
        "except_ = f(except_, 1)",
        "try: pass\nexcept (A, B) as e: pass",
        "'''\nprint 'a'\n'''",
        "x = (\n",
    ],
)
def test_other_text_is_unchanged(text: str) -> None:
    assert translate(text) == text
