"""Formulas of docstrings and pages as MathML."""

import importlib.util
import pathlib
import xml.etree.ElementTree as ET

import pytest

HOOKS = pathlib.Path(__file__).parents[1] / "docs" / "hooks"


@pytest.fixture(scope="module")
def formulas():
    spec = importlib.util.spec_from_file_location("formulas", HOOKS / "formulas.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", "<mi>x</mi>"),
        ("p_ic", "<msub><mi>p</mi><mrow><mi>i</mi><mi>c</mi></mrow></msub>"),
        ("n⁻²", "<msup><mi>n</mi><mrow><mn>\u22122</mn></mrow></msup>"),
        ("a / b", "<mi>a</mi><mo>/</mo><mi>b</mi>"),
        ("√(a b)", '<msqrt><mi>a</mi><mspace width="0.25em"/><mi>b</mi></msqrt>'),
        ("Σ_{i<j}", "<munder><mo>∑</mo><mrow><mi>i</mi><mo>&lt;</mo><mi>j</mi></mrow></munder>"),
        ("p^{1/T}", "<msup><mi>p</mi><mrow><mn>1</mn><mo>/</mo><mi>T</mi></mrow></msup>"),
        ("SKCE_uq", "<msub><mi>SKCE</mi><mrow><mi>uq</mi></mrow></msub>"),
        ("w_i²", "<msubsup><mi>w</mi><mrow><mi>i</mi></mrow><mrow><mn>2</mn></mrow></msubsup>"),
        ("p̄", "<mover accent='true'><mi>p</mi><mo>¯</mo></mover>"),
        ("standard_error", "<mi>standard_error</mi>"),
    ],
)
def test_pieces(text, expected, formulas):
    assert formulas.mathml(text) == f'<math display="inline"><mrow>{expected}</mrow></math>'


def test_lines_are_rows(formulas):
    found = ET.fromstring(formulas.mathml("a = b\n  = c", "block"))
    assert len(found.findall("mtable/mtr")) == 2


@pytest.mark.parametrize("text", ["(a", "a)", "^", "{", "`k`", "<&>", "é_1²", "‖a‖₁"])
def test_whatever_is_written_is_well_formed(text, formulas):
    ET.fromstring(formulas.mathml(text))


@pytest.mark.parametrize("text", ["x_", "x^", "√"])
def test_formulas_that_end_too_early_are_refused(text, formulas):
    with pytest.raises(ValueError, match="expected something behind the last sign"):
        formulas.mathml(text)
