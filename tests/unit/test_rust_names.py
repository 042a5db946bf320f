"""Do Rust's names read as in the source, and do hostile ones cost next to nothing?

The vectors are those of RFC 2603 and of rustc-demangle's own tests (src/v0.rs, src/legacy.rs).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gpu.sandbox.elf import ElfFile
from otel_gpu.stacks.demangle.names import demangle, shorten

PROGRAM = Path(__file__).parents[1] / "programs" / "rust_names.rs"


@pytest.mark.parametrize(
    ("mangled", "source"),
    [
        # RFC 2603
        ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
        ("_RNvNtCs1234_7mycrate3foo3barCs21hi0yVfW1J_10otherthing", "mycrate::foo::bar"),
        ("_RNvMCs1234_7mycrateNtB2_3Foo3bar", "<mycrate::Foo>::bar"),
        ("_RNvXCs1234_7mycrateNtB2_3FooNtB2_3Bar3baz", "<mycrate::Foo as mycrate::Bar>::baz"),
        # rustc-demangle
        ("_RNvC6_123foo3bar", "123foo::bar"),
        (
            "_RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y",
            "utf8_idents::საჭმელად_გემრიელი_სადილი",
        ),
        ("_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_", "cc::spawn::{closure#0}::{closure#0}"),
        (
            (
                "_RNCINkXs25_NgCsbmNqQUJIY6D_4core5sliceINyB9_4IterhENuNgNoBb_4iter8iterator8Iterator9rpositionNCNgNpB9_"
                "6memchr7memrchrs_0E0Bb_"
            ),
            (
                "<core::slice::Iter<u8> as core::iter::iterator::Iterator>::rposition::"
                "<core::slice::memchr::memrchr::{closure#1}>::{closure#0}"
            ),
        ),
        (
            "_RINbNbCskIICzLVDPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_ECs1iopQbuBiw2_3std",
            "alloc::alloc::box_free::<dyn alloc::boxed::FnBox<(), Output = ()>>",
        ),
        ("_RC3foo.llvm.9D1C9369", "foo"),
        ("_RC3foo.llvm.9D1C9369@@16", "foo"),
        ("_RNvC9backtrace3foo.llvm.A5310EB9", "backtrace::foo"),
        (
            "_RNvNtNtNtNtCs92dm3009vxr_4rand4rngs7adapter9reseeding4fork23FORK_HANDLER_REGISTERED.0.0",
            "rand::rngs::adapter::reseeding::fork::FORK_HANDLER_REGISTERED.0.0",
        ),
        # The older form
        ("_ZN4core3fmt9Formatter3pad17h9b2b3a0e5b4d1b31E", "core::fmt::Formatter::pad"),
        ("_ZN4testE", "test"),
        ("_ZN8$RF$testE", "$RF$test"),
        ("_ZN8$RF$test17h05af221e174051e9E", "&test"),
        ("_ZN35Bar$LT$$u5b$u32$u3b$$u20$4$u5d$$GT$17h05af221e174051e9E", "Bar<[u32; 4]>"),
        ("_ZN13test$u20$test4foob17h05af221e174051e9E", "test test::foob"),
        ("_ZN12test$BP$test4foob17h05af221e174051e9E", "test*test::foob"),
        ("_ZN3foo17h05af221e174051e9E.llvm.9D1C9369", "foo"),
        (
            "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE",
            "<Test + 'static as foo::Bar<Test>>::bar",
        ),
        # Not of either form
        ("_R", "_R"),
        ("_RNvC3foo", "_RNvC3foo"),
        ("_RNvC3foo3barx", "_RNvC3foo3barx"),
        ("_RB_", "_RB_"),
        ("_ZN3foo17h05af221e174051e9", "_ZN3foo17h05af221e174051e9"),
    ],
)
def test_names_read_as_in_the_source(mangled: str, source: str) -> None:
    assert demangle(mangled) == source


@pytest.mark.parametrize(
    ("constant", "source"),
    [
        ("p", "_"),
        ("hb_", "11"),
        ("off00ff00ff00ff00ff_", "0xff00ff00ff00ff00ff"),
        ("s98_", "152"),
        ("anb_", "-11"),
        ("b0_", "false"),
        ("b1_", "true"),
        ("c76_", "'v'"),
        ("c22_", "'\"'"),
        ("ca_", "'\\n'"),
        ("c2202_", "'∂'"),
        ("e616263_", '{*"abc"}'),
        ("e27_", '{*"\'"}'),
        ("e090a_", '{*"\\t\\n"}'),
        ("ee28882c3bc_", '{*"∂ü"}'),
        ("Re616263_", '"abc"'),
        ("Rp", "{&_}"),
        ("Rh7b_", "{&123}"),
        ("RRRh0_", "{&&&0}"),
        ("RRRe_", '{&&""}'),
        ("QAE", "{&mut []}"),
        ("Aj0_E", "{[0]}"),
        ("AAh1_h2_EAh3_h4_EE", "{[[1, 2], [3, 4]]}"),
        ("TE", "{()}"),
        ("Tj0_E", "{(0,)}"),
        ("TRe616263_c78_RAh1_h2_h3_EE", "{(\"abc\", 'x', &[1, 2, 3])}"),
        ("VNvINtNtC4core6option6OptionjE4NoneU", "{core::option::Option::<usize>::None}"),
        ("VNvINtNtC4core6option6OptionjE4SomeTj0_E", "{core::option::Option::<usize>::Some(0)}"),
        (
            "VNtC3foo3BarS1sRe616263_2chc78_5sliceRAh1_h2_h3_EE",
            "{foo::Bar { s: \"abc\", ch: 'x', slice: &[1, 2, 3] }}",
        ),
    ],
)
def test_constants_read_as_in_the_source(constant: str, source: str) -> None:
    assert demangle(f"_RIC0K{constant}E") == f"::<{source}>"


@pytest.mark.parametrize("constant", ["b2_", "cd800_", "c110000_", "e6_", "eff_", "h", "hg_", "xf-_", "VC3foo"])
def test_constants_that_are_none_leave_the_name_mangled(constant: str) -> None:
    assert demangle(f"_RIC0K{constant}E") == f"_RIC0K{constant}E"


@pytest.mark.parametrize(
    ("spelled", "source"),
    [
        ("INtC8arrayvec8ArrayVechKj7b_E", "arrayvec::ArrayVec<u8, 123>"),
        ("RL_e", "&str"),
        ("QSh", "&mut [u8]"),
        ("PThE", "*const (u8,)"),
        ("OTE", "*mut ()"),
        ("FUKCjEb", 'unsafe extern "C" fn(usize) -> bool'),
        ("FK8C_unwindEu", 'extern "C-unwind" fn()'),
        ("FG_RL0_hEBa_", "FG_RL0_hEBa_"),
        ("FG_RL0_hEu", "for<'a> fn(&'a u8)"),
        ("FG0_RL1_RL0_hEu", "for<'a, 'b> fn(&'a &'b u8)"),
        ("DG_INtC3foo2FnRL0_hEEL_", "dyn for<'a> foo::Fn<&'a u8>"),
        ("DNtC3foo1ANtC3foo1BEL_", "dyn foo::A + foo::B"),
        ("WmRm1_m9_", "u32 is 1..=9"),
    ],
)
def test_types_read_as_in_the_source(spelled: str, source: str) -> None:
    name = f"_RIC0{spelled}E"

    assert demangle(name) == (name if spelled == source else f"::<{source}>")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("_RINvNtC7mycrate3foo3barhNtC1a1BE", "mycrate::foo::bar"),
        ("_RNCINvC1a3runFjEbE0", "a::run::{closure#0}"),
        ("_RNvXC7mycrateINtB2_3FoohENtB2_3Bar3baz", "<mycrate::Foo<u8> as mycrate::Bar>::baz"),
        ("_ZN42_$LT$$RF$T$u20$as$u20$core..fmt..Debug$GT$3fmt17hde1eeb08801857e2E", "<&T as core::fmt::Debug>::fmt"),
        ("_RNvC3foo", "_RNvC3foo"),
    ],
)
def test_short_names_have_no_generic_arguments(name: str, short: str) -> None:
    assert shorten(name) == short


@pytest.mark.parametrize(
    "name",
    [
        "_RIC0" + "T" * 4000 + "p" + "E" * 4000,
        "_RMC0" + "R" * 4000 + "h",
        "_RIC0TTTTTTpB8_EB7_EB6_EB5_EB4_EB3_E" + "".join(f"TB{c}_B{c}_E" for c in "0123456789abcdef") + "E",
        "_RIC0" + "".join(f"TBn_B{c}_E" for c in "abcdefghijklmnopqrstuvwxyz") * 40 + "E",
        "_RIC0FGzzzzz_uEuE",
        "_RIC0" + "W" * 100 + "E",
    ],
)
def test_a_name_that_stands_for_gigabytes_is_cheap(name: str) -> None:
    started = time.thread_time()
    text = demangle(name)

    assert time.thread_time() - started < 0.5
    assert len(text) <= 128 << 10


@given(st.text(alphabet="CNMXYIBstvuLGKERQPOASTFDWpUVe_0123456789abchijz.", max_size=120))
def test_any_text_is_read_without_failing(text: str) -> None:
    for name in (f"_R{text}", f"_RIC1a{text}E", f"_ZN{text}17h05af221e174051e9E"):
        demangle(name)
        assert shorten(name)


@given(st.text(max_size=60))
def test_any_text_at_all_is_read_without_failing(text: str) -> None:
    demangle(f"_R{text}")
    demangle(f"_RC{len(text)}{text}")
    demangle(f"_ZN{len(text)}{text}17h05af221e174051e9E")


@pytest.mark.parametrize("scheme", ["v0", "legacy"])
def test_a_real_programs_names_read_as_binutils_reads_them(scheme: str, tmp_path: Path) -> None:
    for tool in ("rustc", "c++filt"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    program = tmp_path / "names"
    compiled = subprocess.run(
        ["rustc", "-Zunstable-options", f"-Csymbol-mangling-version={scheme}", "-o", program, PROGRAM],
        env={**os.environ, "RUSTC_BOOTSTRAP": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if compiled.returncode:
        pytest.skip(f"this rustc cannot compile: {compiled.stderr.splitlines()[:1]}")
    with ElfFile(program) as elf:
        names = sorted({s.name for s in elf.symbols(".symtab") if s.name.startswith(("_R", "_ZN"))})
    # A suffix that the compiler added is kept here, and cut off there.
    names = [n for n in names if "." not in n.partition("17h")[2] and not (n.startswith("_R") and "." in n)]
    truth = subprocess.run(["c++filt", "-i"], input="\n".join(names), capture_output=True, text=True, check=True)

    expected = dict(zip(names, truth.stdout.splitlines(), strict=True))
    assert len(expected) > 100
    # Letters beyond ASCII binutils leaves as they are in the older form.
    beyond = [n for n in names if "$uf6$" in n]
    assert all(demangle(n).startswith("rust_names::größe::") for n in beyond)
    assert {n: demangle(n) for n in names if n not in beyond} == {n: t for n, t in expected.items() if n not in beyond}
    assert any("<alloc::vec::Vec<" in text or "<alloc::vec::Vec" in text for text in expected.values())
