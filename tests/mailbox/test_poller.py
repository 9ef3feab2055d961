import os

import pytest

from tsemu.mailbox.memory import new_eventfd
from tsemu.mailbox.poller import EDGE, READ, Poller


@pytest.fixture
def poller():
    made = Poller()
    yield made
    made.close()


@pytest.fixture
def bell():
    fd = new_eventfd()
    yield fd
    os.close(fd)


@pytest.mark.parametrize("timeout_s", [0, 0.0001, 0.005, 0.02])
def test_nothing_ready(poller, bell, timeout_s):
    poller.watch(bell, READ, lambda _: pytest.fail("nothing rang"))
    assert not poller.poll(timeout_s)


@pytest.mark.parametrize("timeout_s", [0, 0.0001, None])
def test_a_doorbell_wakes_although_nobody_reads_it(poller, bell, timeout_s):
    rung = []
    poller.watch(bell, EDGE, rung.append)
    for count in range(1, 4):
        os.eventfd_write(bell, 1)
        assert poller.poll(timeout_s)
        assert len(rung) == count
        assert not poller.poll(0)  # each ring wakes once


def test_a_level_stays_ready_until_it_is_read(poller, bell):
    rung = []
    poller.watch(bell, READ, rung.append)
    os.eventfd_write(bell, 1)
    assert poller.poll(0)
    assert poller.poll(0)
    os.eventfd_read(bell)
    assert not poller.poll(0)


def test_what_a_callback_forgets_is_not_called_in_the_same_round(poller):
    bells = [new_eventfd(), new_eventfd()]
    called = []

    def forget_both(_):
        called.append(1)
        for fd in bells:
            poller.forget(fd)

    for fd in bells:
        poller.watch(fd, READ, forget_both)
        os.eventfd_write(fd, 1)
    poller.poll(0)
    assert called == [1]
    for fd in bells:
        os.close(fd)
