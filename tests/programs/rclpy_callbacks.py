"""Which callback of rclpy makes which launches? Says "ready", waits for a line, and says at the end what each one did.

Needs rclpy and a middleware (tests/ground/ros2.sh). `rclpy_callbacks.py single | multi [late]`: with `late` it waits amid a
callback first, and says "inside" there.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator

import rclpy
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import Executor, MultiThreadedExecutor, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import Int32
from std_srvs.srv import Trigger

IMAGE = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry work()\n{ ret; }\n"
DEADLINE_S = 60


class Gpu:
    """Launches on the mock driver."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._context, module, self._kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self._do("cuInit", 0)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self._do("cuCtxSetCurrent", self._context)
        self._do("cuModuleLoadData", ctypes.byref(module), IMAGE)
        self._do("cuModuleGetFunction", ctypes.byref(self._kernel), module, b"work")

    def launch(self, times: int) -> None:
        """Make so many launches."""
        self._do("cuCtxSetCurrent", self._context)
        for _ in range(times):
            self._do("cuLaunchKernel", self._kernel, times, 1, 1, 1, 1, 1, 0, None, None, None)

    def _do(self, name: str, *arguments: object) -> None:
        if code := self._cuda[name](*arguments):
            sys.exit(f"{name}: {code}")


gpu = Gpu()
lock = threading.Lock()
callbacks: list[tuple[str, str, int, bool]] = []
nobodys: list[int] = []


def did(kind: str, name: str, launches: int) -> None:
    """Note what a callback did."""
    with lock:
        callbacks.append((kind, name, launches, False))


def launch_for_nobody(times: int) -> None:
    """Work outside of callbacks."""
    gpu.launch(times)
    nobodys.append(times)


def launches_one_by_one(times: int) -> Iterator[int]:
    """Launch from a generator."""
    for i in range(times):
        gpu.launch(1)
        yield i


class Robot:
    """A node that talks to itself."""

    def __init__(self, name: str, executor: Executor) -> None:
        self.node = Node(name)
        self.executor = executor
        executor.add_node(self.node)
        self._group = ReentrantCallbackGroup()

    def subscribe(self, topic: str, callback: Callable) -> Callable[[int], None]:
        """Return what publishes on the topic."""
        self.node.create_subscription(Int32, topic, callback, 10, callback_group=self._group)
        publisher = self.node.create_publisher(Int32, topic, 10)
        return lambda value: publisher.publish(Int32(data=value))

    def once(self, callback: Callable[[], None]) -> None:
        """Have a timer call once."""

        def call() -> None:
            timer.cancel()
            callback()

        timer = self.node.create_timer(0.001, call, callback_group=self._group)

    def spin_until(self, is_done: Callable[[], bool]) -> None:
        """Run callbacks until something holds, with work for nobody in between."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_done():
            try:
                self.executor.spin_once(timeout_sec=0.05)
            except RuntimeError as e:
                assert str(e) == "by design"  # noqa: PT017
                launch_for_nobody(2)
            launch_for_nobody(1)
            assert time.monotonic() < deadline, callbacks


def count(kind: str, name: str) -> int:
    """Return how many of these there were."""
    with lock:
        return sum(c[:2] == (kind, name) for c in callbacks)


def run(executor: Executor, *, is_multi: bool) -> None:
    """Bring every situation about."""
    robot = Robot("robot", executor)
    publish = {}

    def plain(topic: str) -> Callable[[Int32], None]:
        def callback(message: Int32) -> None:
            gpu.launch(message.data)
            list(launches_one_by_one(2))
            did("subscription", topic, message.data + 2)

        return callback

    for i in range(4):
        publish[i] = robot.subscribe(f"/plain_{i}", plain(f"/plain_{i}"))
    for value in range(1, 9):
        for i in range(4):
            publish[i](value)
        robot.spin_until(lambda value=value: all(count("subscription", f"/plain_{i}") == value for i in range(4)))

    # It makes the executor look at its nodes anew, by the guard condition that callbacks end with.
    def wakes(message: Int32) -> None:
        gpu.launch(3)
        executor.wake()
        gpu.launch(4)
        did("subscription", "/wakes", 7)

    robot.subscribe("/wakes", wakes)(1)
    robot.spin_until(lambda: count("subscription", "/wakes") == 1)

    # It waits, and others run meanwhile.
    future: Future = Future(executor=executor)

    async def awaits(message: Int32) -> None:
        gpu.launch(5)
        await future
        gpu.launch(6)
        did("subscription", "/awaits", 11)

    robot.subscribe("/awaits", awaits)(1)
    publish[0](30)
    robot.spin_until(lambda: count("subscription", "/plain_0") == 9)

    def resolves() -> None:
        gpu.launch(21)
        future.set_result(None)
        gpu.launch(2)
        did("timer", "", 23)

    robot.once(resolves)
    robot.spin_until(lambda: count("subscription", "/awaits") == 1)

    def serves(request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        gpu.launch(9)
        did("service", "/serves", 9)
        return response

    robot.node.create_service(Trigger, "/serves", serves)
    client = robot.node.create_client(Trigger, "/serves")
    robot.spin_until(client.service_is_ready)
    answer = client.call_async(Trigger.Request())
    robot.spin_until(answer.done)
    did("client", "/serves", 0)

    def starts_a_thread() -> None:
        gpu.launch(1)
        thread = threading.Thread(target=gpu.launch, args=(50,))
        thread.start()
        thread.join()
        did("timer", "", 51)

    robot.once(starts_a_thread)
    robot.spin_until(lambda: ("timer", "", 51, False) in callbacks)

    # One that runs an executor itself.
    def nests() -> None:
        gpu.launch(70)
        inner = SingleThreadedExecutor()
        other = Robot("other", inner)
        other.subscribe("/nested", plain("/nested"))(13)
        deadline = time.monotonic() + DEADLINE_S
        while not count("subscription", "/nested") and time.monotonic() < deadline:
            inner.spin_once(timeout_sec=0.05)
        gpu.launch(1)
        inner.shutdown()
        did("timer", "", 71)

    robot.once(nests)
    robot.spin_until(lambda: ("timer", "", 71, False) in callbacks)

    if not is_multi:  # whose threads keep what was thrown to themselves

        def throws() -> None:
            gpu.launch(90)
            did("timer", "", 90)
            raise RuntimeError("by design")

        robot.once(throws)
        robot.spin_until(lambda: ("timer", "", 90, False) in callbacks)


def wait_amid_a_callback(executor: Executor) -> None:
    """Let somebody come while a callback runs."""
    robot = Robot("late", executor)
    is_over = threading.Event()

    def callback() -> None:
        gpu.launch(5)
        say("inside")
        sys.stdin.readline()
        launch_for_nobody(4)
        is_over.set()

    robot.once(callback)
    while not is_over.is_set():
        executor.spin_once(timeout_sec=0.05)


def say(event: str, **more: object) -> None:
    """Tell whoever has started this."""
    print(json.dumps({"event": event, **more}), flush=True)


def main() -> None:
    is_multi = sys.argv[1] == "multi"
    rclpy.init()
    executor = MultiThreadedExecutor(4) if is_multi else SingleThreadedExecutor()
    if "late" in sys.argv:
        wait_amid_a_callback(executor)
    else:
        say("ready")
        sys.stdin.readline()
    run(executor, is_multi=is_multi)
    executor.shutdown()
    say("phase", nobodys=sum(nobodys), beyond=0, callbacks=callbacks)
    sys.stdin.readline()


main()
