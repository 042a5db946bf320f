"""A program's record of a handle names it only where records are known to be right, and the launch agrees."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.receivers.cuda.kernel_names.records import told_by_records
from otel_gpu.receivers.cuda.kernel_names.resident_pages import AROUND, Places

STUBS = {0x1000 + 16 * i: f"kernel{i}" for i in range(40)}
STUB_OF = {name: stub for stub, name in STUBS.items()}
TOLD = {100 + i: f"kernel{i}" for i in range(4)}
UNKNOWN, OTHER = 900, 901


def place(handle: int, **stubs: str) -> tuple[int, ...]:
    """Return what stands around a handle: stubs by distance, `p3` three words after it and `m4` four before."""
    words = [0] * (2 * AROUND + 1)
    words[AROUND] = handle
    for at, name in stubs.items():
        words[AROUND + int(at[1:]) * (1 if at[0] == "p" else -1)] = STUB_OF[name]
    return tuple(words)


def known(**others: str) -> Places:
    """Return the records of the told handles: their own stub three words on."""
    return {handle: [place(handle, p3=name, **others)] for handle, name in TOLD.items()}


def told(places: Places, *held: str, names: dict[int, str] = TOLD) -> str | None:
    return told_by_records(places, names, {UNKNOWN: frozenset(held)}, STUBS.get).get(UNKNOWN)


def test_a_record_and_the_launching_thread_that_agree_name_a_handle() -> None:
    places = {**known(), UNKNOWN: [place(UNKNOWN, p3="kernel9")]}

    assert told(places, "kernel9", "kernel8") == "kernel9"


def test_the_record_beside_it_is_another_handles() -> None:
    places = {**known(m4="kernel20"), UNKNOWN: [place(UNKNOWN, m4="kernel8", p3="kernel9")]}

    assert told(places, "kernel9", "kernel8") == "kernel9"
    assert told(places, "kernel8") is None


def test_a_record_that_the_launching_thread_does_not_confirm_names_nothing() -> None:
    assert told({**known(), UNKNOWN: [place(UNKNOWN, p3="kernel9")]}, "kernel8") is None
    assert told({**known(), UNKNOWN: [place(UNKNOWN, p3="kernel9")]}) is None


def test_a_distance_that_gave_a_wrong_name_once_is_not_believed() -> None:
    places = {**known(), UNKNOWN: [place(UNKNOWN, p3="kernel9")]}
    places[100].append(place(100, p3="kernel30"))

    assert told(places, "kernel9") is None


def test_a_distance_must_have_named_several_kernels() -> None:
    places = {**known(), UNKNOWN: [place(UNKNOWN, p3="kernel9")]}
    same = dict.fromkeys(TOLD, "kernel0")
    all_same = {handle: [place(handle, p3="kernel0")] for handle in TOLD}

    assert told(places, "kernel9", names=dict(list(TOLD.items())[:2])) is None
    assert told({**all_same, UNKNOWN: places[UNKNOWN]}, "kernel9", names=same) is None


def test_two_records_that_both_fit_name_nothing() -> None:
    places = {**known(), UNKNOWN: [place(UNKNOWN, p3="kernel9"), place(UNKNOWN, p3="kernel8")]}

    assert told(places, "kernel9", "kernel8") is None
    assert told(places, "kernel9") == "kernel9"


def test_a_handle_that_may_have_any_name_has_the_recorded_one() -> None:
    places = {**known(), UNKNOWN: [place(UNKNOWN, p3="kernel9")]}

    assert told_by_records(places, TOLD, {UNKNOWN: None}, STUBS.get) == {UNKNOWN: "kernel9"}
    places[UNKNOWN].append(place(UNKNOWN, p3="kernel8"))
    assert told_by_records(places, TOLD, {UNKNOWN: None}, STUBS.get) == {}


def test_a_handle_that_stands_nowhere_stays_unknown() -> None:
    assert told(known(), "kernel9") is None
    assert told_by_records({}, {}, {}, STUBS.get) == {}


_WORDS = st.sampled_from([0, 1, UNKNOWN, *list(STUBS)[:6]])
_PLACES = st.dictionaries(
    st.sampled_from([*TOLD, UNKNOWN, OTHER]), st.lists(st.tuples(*[_WORDS] * (2 * AROUND + 1)), max_size=4)
)


@given(_PLACES, st.frozensets(st.sampled_from(list(STUB_OF)[:6])))
def test_no_name_is_told_that_the_thread_does_not_hold(places: Places, held: frozenset[str]) -> None:
    name = told(places, *held)

    assert name is None or name in held
