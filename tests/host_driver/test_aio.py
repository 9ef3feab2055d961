"""Awaitables: tasks and streams in coroutines, embedded and across processes."""

import asyncio

import pytest

from tsemu.host_driver import (
    ClosedError,
    Device,
    DeviceLostError,
    DeviceTimeoutError,
    TaskResetError,
    TaskTimeoutError,
)


def test_await_a_task(either):
    async def main():
        stream = either.create_stream(in_order=False)
        a = stream.launch(cycles=1000)
        assert await a is a
        b = stream.launch(cycles=1000, after=[a])
        assert (await b).start_ps >= a.end_ps
        assert await a is a

    asyncio.run(main())


def test_several_coroutines_share_the_clock(either):
    async def chain(stream, length, cycles):
        task = stream.launch(cycles=cycles)
        for _ in range(length):
            await task
            task = stream.launch(cycles=cycles, after=[task])
        return await task

    async def main():
        stream = either.create_stream(in_order=False)
        return await asyncio.gather(*(chain(stream, 10, 1000 + 37 * i) for i in range(5)))

    ends = [task.end_ps for task in asyncio.run(main())]
    assert len(set(ends)) == 5


def test_the_same_program_gives_the_same_times_embedded_and_across_processes(device, served):
    async def worker(stream, seed):
        ends = []
        for i in range(20):
            task = stream.launch(cycles=500 + (seed * 7919 + i * 104729) % 1000)
            ends.append((await task).end_ps)
        return ends

    async def main(device):
        stream = device.create_stream(in_order=False)
        return await asyncio.gather(*(worker(stream, seed) for seed in range(6)))

    embedded = asyncio.run(main(device))
    with Device.open(served, name="tester") as other:
        assert asyncio.run(main(other)) == embedded


def test_synchronize_async(either):
    async def main():
        one, two = either.create_stream(), either.create_stream()
        tasks = [one.launch(cycles=1000) for _ in range(10)]
        slow = two.launch(cycles=1_000_000)
        await one.synchronize_async()
        assert all(task.ok for task in tasks)
        assert slow.status is None
        with pytest.raises(DeviceTimeoutError):
            await two.synchronize_async("1us")
        await either.synchronize_async()
        assert slow.ok

    asyncio.run(main())


def test_a_failed_task_raises_in_its_coroutine(either):
    async def main():
        task = either.default_stream.launch(cycles=1_000_000_000, timeout="1us")
        with pytest.raises(TaskTimeoutError):
            await task

    asyncio.run(main())


def test_a_cancelled_await_leaves_everything_usable(either):
    async def main():
        task = either.default_stream.launch(cycles=1_000_000)
        waiting = asyncio.ensure_future(_await(task))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await task is task

    asyncio.run(main())


def test_exceptions_of_callbacks_reach_an_await(either):
    async def main():
        task = either.default_stream.launch(cycles=1000)
        task.add_done_callback(lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await task

    asyncio.run(main())


def test_closing_ends_pending_awaits():
    async def main():
        device = Device.open("emu:edge-2", clock="paced:0.000001")
        task = device.default_stream.launch(cycles=1_000_000_000)
        waiting = asyncio.ensure_future(_await(task))
        for _ in range(5):
            await asyncio.sleep(0)
        device.close()
        with pytest.raises(ClosedError):
            await waiting

    asyncio.run(main())


def test_a_device_process_that_dies_ends_pending_awaits(serve):
    async def main():
        server = serve("--clock", "paced:0.000001")
        with Device.open(server.address) as device:
            task = device.default_stream.launch(cycles=1_000_000_000)
            waiting = asyncio.ensure_future(_await(task))
            everything = asyncio.ensure_future(device.synchronize_async())
            for _ in range(5):
                await asyncio.sleep(0)
            server.process.kill()
            with pytest.raises((DeviceLostError, TaskResetError)):
                await waiting
            with pytest.raises(DeviceLostError):
                await everything

    asyncio.run(main())


async def _await(task):
    return await task
