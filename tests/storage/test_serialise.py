"""Parameters as plain data, there and back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from examples import EXAMPLES
from hypothesis import given
from hypothesis import strategies as st
from oracles import one_sentence

from asyncqn import AsyncSGD
from asyncqn.algorithms import (
    ALGORITHMS,
    algorithm_from_json,
    algorithm_to_json,
    make_algorithm,
)
from asyncqn.errors import BadInput
from asyncqn.storage.serialise import to_json


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_algorithm_survives_json(name):
    algorithm = EXAMPLES[name]
    text = json.dumps(algorithm_to_json(algorithm), allow_nan=False)
    assert algorithm_from_json(json.loads(text)) == algorithm


def test_every_algorithm_of_the_registry_has_an_example_that_the_tests_run():
    assert {type(EXAMPLES[kind]) for kind in ALGORITHMS} == set(ALGORITHMS.values())
    assert set(ALGORITHMS) <= set(EXAMPLES)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x) | st.tuples(x),
    )
)
def test_plain_data_is_always_json(value):
    assert to_json(json.loads(json.dumps(to_json(value), allow_nan=False))) == to_json(
        value
    )


def test_arrays_and_numpy_numbers_become_plain():
    assert to_json({"a": np.array([1.0, np.inf]), 3: np.int32(4)}) == {
        "a": [1.0, "inf"],
        "3": 4,
    }
    with pytest.raises(TypeError, match="object has no JSON form"):
        to_json(object())


@pytest.mark.parametrize(
    ("kind", "parameters", "words"),
    [
        ("newton", {}, "there is no algorithm 'newton'; there are as-lbfgs"),
        ("as-lbgfs", {}, "there is no algorithm 'as-lbgfs'; perhaps 'as-lbfgs' is meant"),
        ("async-sgd", {"h": 1.0, "batch": 2, "momentun": 0.9}, "no parameter 'momentun'; it knows h, batch"),
        ("async-sgd", {}, "lacks the parameters h, batch"),
        ("sgd", {"h": 1.0, "batch": 2, "momentum": "much"}, r"momentum must be a number in \[0, 1\), not"),
        ("sgld", {"h": 1.0, "batch": 2, "beta": [1.0]}, "beta must be a positive number or infinity, not"),
    ],
)  # fmt: skip
def test_wrong_parameters_are_named_in_one_sentence(kind, parameters, words):
    with pytest.raises(BadInput, match=words) as caught:
        make_algorithm(kind, parameters)
    assert one_sentence(caught.value)


def test_a_class_that_nobody_could_import_is_stored_by_name_only():
    class Mine(AsyncSGD):
        pass

    plain = algorithm_to_json(Mine(1e-3, 5))
    assert plain == {"kind": "Mine", "parameters": None}
    assert algorithm_from_json(plain) is None
