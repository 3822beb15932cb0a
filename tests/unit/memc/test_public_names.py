# SPDX-License-Identifier: Apache-2.0
"""What `import memc` offers: names, the version, errors that cross processes, and objects that say what they are."""

import inspect
import pickle
from importlib.metadata import version

import pytest

import memc
import memc.estimation.phantom.failures
import memc.planning

MODEL = """
func @main(%x: f32[1,4] {role = input}) -> f32[1,4] {
  %y = tanh(%x) : f32[1,4]
  return %y
}
"""


def test_every_name_is_found_and_listed() -> None:
    listed = dir(memc)
    assert set(memc.__all__) <= set(listed)
    assert all(getattr(memc, name) is not None for name in memc.__all__)
    assert "importlib" not in listed and "_HOME" not in listed


def test_type_checkers_see_the_names_that_are_loaded_when_used() -> None:
    text = inspect.getsource(memc)
    shown = text.split("if TYPE_CHECKING:")[1].split("_HOME")[0]
    assert [name for name in memc.__all__ if name not in shown.replace(",", " ").split()] == []


def test_the_version_is_that_of_the_installed_package() -> None:
    assert memc.__version__ == version("memc")


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'memc' has no attribute 'complie'"):
        memc.complie  # noqa: B018


def subclasses(kind: type[memc.MemcError]) -> list[type[memc.MemcError]]:
    found = [kind]
    for below in kind.__subclasses__():
        found += subclasses(below)
    return found


@pytest.mark.parametrize("kind", subclasses(memc.MemcError), ids=lambda kind: kind.__name__)
def test_errors_survive_pickling(kind: type[memc.MemcError]) -> None:
    error = kind("what went wrong")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and str(copy) == str(error) and vars(copy) == vars(error)
    assert copy.exit_code == error.exit_code


def test_objects_say_what_they_are() -> None:
    compilation = memc.compile(memc.parse(MODEL), plan_only=True)
    assert repr(compilation).startswith("<Compilation: plan only; <Report: arena ")
    assert "lower bound" in repr(compilation.report) and "1 ops" in repr(compilation.report)
    assert repr(compilation.module.main) == "<Function @main (1 ops)>"
    assert repr(memc.plan([memc.Tensor("a", 0, 2, 64), memc.Tensor("b", 1, 3, 64)])).startswith(
        "<Plan of 2 tensors: peak 128 B, optimal, by "
    )


def test_an_executable_says_what_it_takes_and_makes() -> None:
    executable = memc.compile(memc.parse(MODEL)).load()
    assert "(x: f32[1,4]) -> (output.0: f32[1,4])" in repr(executable)
