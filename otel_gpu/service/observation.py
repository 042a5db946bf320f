"""Which receivers observe, and who tells them of processes and libraries? All that an agent and a recording have in common."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from ..components import Context, ProcessorContext
from ..components.counting.request_spans import RequestSpans
from ..components.counting.shared import Counting
from ..components.processors import Processor
from ..components.receivers import LibraryReceiver, Receiver, SelfMeasuring, Supervised
from ..components.registry import COUNTING
from ..config.factories import receiver_factory
from ..config.settings import component_type
from ..discovery.followed import FollowedProcesses
from ..discovery.gpus import has_gpu
from ..discovery.kubernetes.settings import KubernetesSettings
from ..discovery.libraries import Library
from ..discovery.process_devices import DeviceTable
from ..discovery.processes import Process, ProcessTable
from ..discovery.selection import EVERYTHING, Selection
from ..discovery.watch import Watcher
from ..errors import UnsupportedKernelError
from ..probes.counted import Counted
from ..probes.planning import plan_library
from ..runtime.memory_limit import table_share
from ..runtime.shortage import require_descriptors
from ..runtime.supervision import Component, Health
from ..sandbox.files import File, MappedFile
from ..sandbox.parsers import Parsers
from ..signals import Signal, self_metrics
from ..signals.metrics import Resource, SelfReading
from .ending import Ending
from .identity import agent_resource, hardware_resource

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from ..discovery.kubernetes.pods import Pods

Kind = TypeVar("Kind")
OnAttached = Callable[[Process, Library, int | None, int], None]
"""(process, library, since when the process has it mapped, when its probes were in place), both by the monotonic clock."""


def counted_for(wanted: Mapping[str, object]) -> Counted:
    """Return how much must be counted in the kernel for some receivers: `wanted` are their settings by id."""
    asked = (receiver_factory(component).counted(settings) for component, settings in wanted.items())
    return max((counted for counted in asked if counted is not None), default=Counted.LAUNCHES)


class Observation:
    """The receivers of one run, and what watches for them."""

    def __init__(
        self,
        wanted: Mapping[str, object],
        *,
        pids: tuple[int, ...] = (),
        follows_children: bool = False,
        observes_at_once: bool = False,
        resource_attributes: Mapping[str, str] = {},
        shared_attributes: Mapping[str, str] = {},
        selection: Selection = EVERYTHING,
        readings: Callable[[], Iterable[SelfReading]] = tuple,
        health: Callable[[], Iterable[Health]] = tuple,
        parsers: Parsers | None = None,
        counting: object | None = None,
        kubernetes: KubernetesSettings | None = None,
    ) -> None:
        """`wanted` are settings of receivers by id; nothing is touched before `open`.

        `pids` are the only processes to observe, with all that come of them where it `follows_children`, and `selection` says
        which of them. It observes children when they map a GPU library, or, if it `observes_at_once`, as they are made. The
        agent itself has `resource_attributes`, whatever is observed has `shared_attributes`. `readings` and `health` tell of the parts around the receivers. `counting` are settings of the
        receiver that counts for others, where it is not wanted itself. `kubernetes` is where pods are asked for, None where
        nobody wants to know them.
        """
        self._wanted = dict(wanted)
        self._counting_settings = counting
        self._pids = pids
        self._follows_children = follows_children and bool(pids)
        self._observes_at_once = observes_at_once
        self.followed: FollowedProcesses | None = None
        """The processes that are observed now, where it follows them."""
        self._resource_attributes = resource_attributes
        self._shared_attributes = shared_attributes
        self._readings = readings
        self._health = health
        self.parsers = parsers or Parsers()
        self.processes = ProcessTable(shared_attributes, self.parsers, selection)
        self.receivers: dict[str, Receiver] = {}
        """By id, those first that others were made with."""
        self.completed_by: list[Processor] = []
        """What adds to measurements what several receivers know together."""
        self._host = hardware_resource(shared_attributes)
        self._context: Context | None = None
        self._kubernetes = kubernetes
        self._pods: Pods | None = None
        self._refused: dict[str, UnsupportedKernelError] = {}
        self._watcher: Watcher | None = None
        self._component = Component("libraries")

    def open(self) -> None:
        """Make the receivers; OtelGpuError where that cannot be."""
        given = {signal for component in self._wanted for signal in receiver_factory(component).signals}
        share = 1.0
        if self._kubernetes is not None:
            from ..discovery.kubernetes.pods import Pods

            self._pods = Pods(self._kubernetes)
            self._pods.start()
            self.processes.identities.ask_pods(self._pods.find)
        if self.places_probes:
            require_descriptors(profiles="profiles" in given)
            share = table_share(profiles="profiles" in given, requests="traces" in given)
            # While programs are loaded a child gets ready.
            self.parsers.start()
            if self._pids or has_gpu():
                self.parsers.prepare(plan_library)
        self._context = Context(
            host=self._host,
            agent=agent_resource(self._resource_attributes),
            observed=self._observed,
            processes=self.processes,
            parsers=self.parsers,
            pids=self._pids,
            follows_children=self._follows_children,
            is_chosen=self._is_chosen,
            devices=DeviceTable(self.processes),
            table_share=share,
            types=frozenset(map(component_type, self._wanted)),
            counting=self._counting,
            request_spans=RequestSpans(),
            complete=self.completed_by.append,
            pods=self._known_pods,
            readings=self.readings,
            health=self._health,
        )
        for component in sorted(self._wanted, key=lambda wanted: receiver_factory(wanted).reads_last):
            self._make(component, self._wanted[component])

    def processor_context(self, component: str, signal: Signal) -> ProcessorContext:
        """Return what a processor of a pipeline of a signal is told."""
        return ProcessorContext(component, signal, self._host, self._observed, self._known_pods)

    def _known_pods(self) -> Pods:
        assert self._pods is not None, "a factory says with needs_pods that pods are wanted"
        return self._pods

    def _observed(self) -> list[Resource]:
        found = (process.resource for process in self.processes if not process.ended)
        return [resource for resource in found if self.processes.identities.is_selected(resource)]

    def _is_chosen(self, pid: int) -> bool:
        return not self._pids or pid in self._pids or (self.followed is not None and pid in self.followed)

    @property
    def places_probes(self) -> bool:
        """Whether any receiver loads programs into the kernel."""
        return any(receiver_factory(component).places_probes for component in self._wanted)

    def watch(
        self,
        on_exit: Callable[[Process], None] = lambda _process: None,
        on_attached: OnAttached = lambda _process, _library, _mapped_ns, _placed_ns: None,
    ) -> None:
        """Attach to what runs and follow the rest, where any receiver places probes."""
        attaching = self.of_kind(LibraryReceiver)
        if not attaching:
            return
        if self._follows_children and (counting := self._counter()) is not None:
            self.followed = FollowedProcesses(counting.tables.targets)
        watcher = self._watcher = Watcher(
            self.processes,
            self.parsers,
            partial(self._on_library, on_attached),
            pids=self._pids,
            followed=self.followed,
            observes_at_once=self._observes_at_once,
            on_exit=on_exit,
            on_map=self.observe,
            on_unused=lambda library: self._each(lambda receiver: receiver.detach(library)),
            retry=lambda: self._each(lambda receiver: receiver.retry()),
        )
        for library, file, path in (found for receiver in attaching for found in receiver.installed()):
            self._attach(library, file)
            watcher.keep(library, path)
        if self.followed is not None:
            # The kernel follows from here on; a process that was made before is found by its parent.
            for pid in self.followed.add_descendants(self._pids):
                if self._observes_at_once:
                    self.processes.observe(pid, late=True)
                    self.observe(pid)
        watcher.scan()
        watcher.start()

    def observe(self, pid: int) -> None:
        """Have a process looked at that has mapped code."""
        self._each(lambda receiver: receiver.observe(pid))

    def of_kind(self, kind: type[Kind]) -> list[Kind]:
        """Return the receivers of a kind."""
        return [receiver for receiver in self.receivers.values() if isinstance(receiver, kind)]

    def find(self, kind: type[Kind]) -> Kind | None:
        """Return the receiver of a kind of which there is one at the most."""
        return next(iter(self.of_kind(kind)), None)

    def is_ready(self) -> bool:
        """Say whether what chosen processes do first can be taken in whole."""
        return all(receiver.is_ready(self._pids) for receiver in self.of_kind(LibraryReceiver))

    def health(self) -> list[Health]:
        """Say how the receivers are, and what knows the processes."""
        found = [self._component.health(), *self.processes.health()]
        for receiver in self.receivers.values():
            if isinstance(receiver, Supervised):
                found += receiver.health()
        if self._pods is not None:
            found += self._pods.health()
        return found

    def readings(self) -> Iterator[SelfReading]:
        """Yield what the receivers and the parts around them measure of themselves."""
        for receiver in self.receivers.values():
            if isinstance(receiver, SelfMeasuring):
                yield from receiver.readings()
        if self._pods is not None:
            yield from self._pods.readings()
        identities = self.processes.identities
        for cut, count in identities.cuts().items():
            yield SelfReading(self_metrics.RESOURCE_ATTRIBUTES_CUT, count, {"otel_gpu.reason": cut.value})
        for reason, count in identities.unread().items():
            yield SelfReading(self_metrics.PROCESSES_UNREAD, count, {"otel_gpu.reason": reason.value})
        yield from self._readings()

    def look_no_more(self, hurry_s: float) -> None:
        """Take in nothing new, without a wait: what comes next needs the time. What is being read has `hurry_s`."""
        if self._watcher is not None:
            self._watcher.look_no_more()
        self._each(lambda receiver: receiver.place_no_more())
        self._each(lambda receiver: receiver.hurry(hurry_s))

    def stop_watching(self, ending: Ending) -> None:
        """Follow no further events."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            ending.attempt("discovery", watcher.stop)

    def settle(self, limit_s: float) -> None:
        """Wait a last time for what is still looked up."""
        self._each(lambda receiver: receiver.settle(limit_s))

    def release(self, ending: Ending) -> None:
        """Let go of everything, those first that were made with others."""
        # What hangs may go on one day, and must find what it works on.
        is_in_use = not ending.is_complete
        for component, receiver in reversed(self.receivers.items()):
            let_go = receiver.close
            if is_in_use and isinstance(receiver, LibraryReceiver):
                let_go = receiver.detach_all
            ending.release(f"the receiver {component} is", let_go)
        self.receivers.clear()
        if self._pods is not None:
            ending.release("the question for pods is", self._pods.close)
        ending.release("the children that parse are", self._end_children)

    def _end_children(self) -> None:
        self.parsers.close()
        self.processes.close()

    def _counting(self) -> Counting:
        """Return the receiver that counts for others, made if need be; UnsupportedKernelError where it cannot be."""
        component = next((wanted for wanted in self._wanted if component_type(wanted) == COUNTING), COUNTING)
        settings = self._wanted.get(component, self._counting_settings)
        if settings is None:
            make = receiver_factory(component).counts_for_others
            assert make is not None
            settings = make(counted_for(self._wanted))
        self._make(component, settings)
        if component in self._refused:
            raise self._refused[component]
        return cast("Counting", self.receivers[component])

    def _counter(self) -> Counting | None:
        """Return the receiver that counts, if any receiver needed it."""
        made = (receiver for component, receiver in self.receivers.items() if component_type(component) == COUNTING)
        return cast("Counting | None", next(made, None))

    def _make(self, component: str, settings: object) -> None:
        """Make a receiver, unless it is there or was refused."""
        if component in self.receivers or component in self._refused:
            return
        factory = receiver_factory(component)
        assert self._context is not None
        try:
            self.receivers[component] = factory.create(self._context, settings)
        except UnsupportedKernelError as e:
            self._refused[component] = e
            if self._refused.keys() >= self._wanted.keys():
                raise
            _log.warning("no %s: %s", " and ".join(factory.signals), e)

    def _on_library(
        self, on_attached: OnAttached, process: Process, library: Library, file: MappedFile, mapped_ns: int | None
    ) -> None:
        # What stacks need is read while probes are placed.
        self.observe(process.pid)
        # What the process does before the probes are there is not seen.
        placed_ns = self._attach(library, file)
        if placed_ns is not None:
            on_attached(process, library, mapped_ns, placed_ns)

    def _attach(self, library: Library, file: File) -> int | None:
        """Return when the probes of the first receiver that has any there were in place."""
        first, *others = self.of_kind(LibraryReceiver)
        if not others:
            return first.attach(library, file)
        # Side by side: all wait for a child that decodes, and for the kernel.
        with ThreadPoolExecutor(len(others), "attaching") as beside:
            placing = [beside.submit(receiver.attach, library, file) for receiver in others]
            found = [first.attach(library, file), *(placed.result() for placed in placing)]
        return next((placed_ns for placed_ns in found if placed_ns is not None), None)

    def _each(self, do: Callable[[LibraryReceiver], object]) -> None:
        for receiver in self.of_kind(LibraryReceiver):
            with self._component:
                do(receiver)
