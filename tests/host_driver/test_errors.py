"""The error tree and what its members say."""

import pytest

from tsemu.descriptors.codes import Status
from tsemu.host_driver import errors
from tsemu.host_driver._driver import lib


def test_codes_are_those_of_the_library():
    for kind in errors._BY_CODE.values():
        word = errors._NAMES[kind.code]
        assert kind.code == getattr(lib, f"TSEMU_E_{word}")
    assert errors.TaskError.code == lib.TSEMU_E_FAILED


def test_every_status_but_ok_has_an_error_of_its_own():
    kinds = {
        type(errors.task_error(task=4, stream=1, status=status, ancestor=4))
        for status in Status
        if status != Status.OK
    }
    assert len(kinds) == len(Status) - 1
    assert all(issubclass(kind, errors.TaskError) for kind in kinds)


def test_str_says_code_values_and_remedy():
    error = errors.InvalidError(
        "is out of range", field="blocks", value=0, limit=1, task=3, stream=2, hint="give more"
    )
    text = str(error)
    assert text == "INVALID: blocks = 0: is out of range (task 3, stream 2); give more"


def test_familiar_bases():
    assert issubclass(errors.InvalidError, ValueError)
    assert issubclass(errors.DeviceTimeoutError, TimeoutError)


def test_a_task_error_names_the_ancestor():
    error = errors.task_error(task=9, stream=0, status=Status.DEP_ABORTED, ancestor=4)
    assert isinstance(error, errors.DependencyAbortedError)
    assert "task 9 ended with status DEP_ABORTED because task 4 did not succeed" in str(error)
    assert error.ancestor == 4


def test_an_unknown_status_is_an_error_too():
    error = errors.task_error(task=1, stream=0, status=77, ancestor=1)
    assert "status 77 (unknown)" in str(error)


def test_a_code_without_words_is_still_an_error():
    error = errors.last_error(-12345)
    assert type(error) is errors.TsemuError
    with pytest.raises(errors.TsemuError, match="-12345"):
        raise error
