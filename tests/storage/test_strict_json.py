"""JSON without the extensions that other readers refuse."""

import pytest

from batchkron.storage import strict_json


def test_floats_come_back_bitwise(rng):
    values = [0.1, -0.0, 5e-324, 1.7976931348623157e308, *rng.normal(size=100).tolist()]
    back = strict_json.loads(strict_json.dumps(values))
    assert [x.hex() for x in back] == [x.hex() for x in values]


def test_equal_data_give_equal_text():
    assert strict_json.dumps({"b": 1, "a": "ü"}) == strict_json.dumps({"a": "ü", "b": 1})


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([float("nan")], ValueError),
        ({"a": float("inf")}, ValueError),
        ({1: 2}, TypeError),
        ([{1, 2}], TypeError),
        (object(), TypeError),
    ],
)
def test_what_json_cannot_say_is_not_written(data, error):
    with pytest.raises(error):
        strict_json.dumps(data)


def test_too_deep_data_are_not_written():
    data = []
    for _ in range(200):
        data = [data]
    with pytest.raises(ValueError, match="deeper than 100 levels"):
        strict_json.dumps(data)


NOT_STRICT = {
    "nothing": "",
    "unfinished": "{",
    "nan": "[NaN]",
    "infinity": "[Infinity]",
    "overflow": "[1e999]",
    "repeated key": '{"a":1,"a":2}',
    "comma": "[1,]",
    "deep": "[" * 150 + "]" * 150,
    "very deep": "[" * 100_000,
    "quotes": "'a'",
    "two values": "[1] 2",
    "long number": "9" * 5000,
}


@pytest.mark.parametrize("text", NOT_STRICT.values(), ids=NOT_STRICT.keys())
def test_what_is_not_strict_is_not_read(text):
    with pytest.raises(ValueError, match=r"JSON|line 1|digits"):
        strict_json.loads(text)
