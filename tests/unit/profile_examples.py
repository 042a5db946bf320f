"""Profiles to test with: a training loop as the receivers would hand it over, and stacks that mean harm."""

from __future__ import annotations

from otel_gpu.signals.metrics import Resource, attributes
from otel_gpu.signals.profiles import (
    GPU_LAUNCHES,
    FileMapping,
    Frame,
    FrameKind,
    Profile,
    ProfileBuilder,
    ProfileType,
    SpanLink,
    Stack,
    marker,
    truncation,
)

START_NS = 1_790_000_000_000_000_000
PYTHON = FileMapping("/usr/bin/python3.11", build_id="aa" * 20, start=0x1000, end=0x400000, file_offset=0x1000)
TORCH = FileMapping("/venv/lib/libtorch_cuda.so", build_id="bb" * 20, start=0x10000, end=0x9000000, file_offset=0x10000)
CUDA = FileMapping("/usr/lib/libcuda.so.1", build_id="cc" * 20, start=0x2000, end=0x800000)
STRIPPED = FileMapping("/opt/vendor/libsecret.so", htlhash="dd" * 16, start=0x1000, end=0x90000)


def resource(pid: int = 4711, name: str = "train") -> Resource:
    return Resource(
        attributes(
            {
                "service.name": name,
                "process.pid": pid,
                "process.executable.path": "/usr/bin/python3.11",
                "process.command_line": "python train.py --epochs 3",
                "host.name": "node-7",
                "container.id": "3f1c0a9be2d4",
            }
        )
    )


def python(function: str, line: int, filename: str = "/app/train.py") -> Frame:
    return Frame(FrameKind.CPYTHON, function, filename, line)


def native(function: str, address: int, mapping: FileMapping = TORCH) -> Frame:
    return Frame(FrameKind.NATIVE, function, mapping=mapping, address=address)


def kernel(name: str) -> Frame:
    return Frame(FrameKind.CUDA, name)


BASE: Stack = (python("main", 88), python("<module>", 97), native("_start", 0x1200, PYTHON))
FORWARD: Stack = (
    python("Attention.forward", 31, "/app/model.py"),
    python("Module._call_impl", 1750, "/venv/torch/nn/modules/module.py"),
    python("Transformer.forward", 57, "/app/model.py"),
    python("train_step", 41),
    *BASE,
)
MLP: Stack = (
    python("MLP.forward", 12, "/app/model.py"),
    python("Module._call_impl", 1750, "/venv/torch/nn/modules/module.py"),
    python("Transformer.forward", 59, "/app/model.py"),
    python("train_step", 41),
    *BASE,
)
BACKWARD: Stack = (
    native("torch::autograd::Engine::evaluate_function(std::shared_ptr<GraphTask>&)", 0x81000),
    native("torch::autograd::Engine::thread_main(std::shared_ptr<GraphTask> const&)", 0x82000),
    marker("[backward, called from]"),
    python("Tensor.backward", 626, "/venv/torch/_tensor.py"),
    python("train_step", 44),
    *BASE,
)
LAUNCH: Stack = (native("cuLaunchKernel", 0x4210, CUDA), native("at::native::gpu_kernel_impl", 0x52000))
GEMM: Stack = (
    native("cuLaunchKernel", 0x4210, CUDA),
    native("", 0x5ABC0, STRIPPED),
    native("at::cuda::blas::gemm", 0x53000),
)
OPTIMIZER: Stack = (
    python("_multi_tensor_adamw", 512, "/venv/torch/optim/adamw.py"),
    python("AdamW.step", 243, "/venv/torch/optim/adamw.py"),
    python("train_step", 47),
    *BASE,
)
LOADER: Stack = (
    python("DataLoader.__next__", 733, "/venv/torch/utils/data/dataloader.py"),
    python("main", 84),
    *BASE[1:],
)
LINK = SpanLink(bytes(range(1, 17)), bytes(range(1, 9)))


def training(type_: ProfileType = GPU_LAUNCHES, pid: int = 4711, scale: int = 1, skip: str | None = None) -> Profile:
    """Return what one training process did; `skip` leaves out the stacks through a function of that name."""
    builder = ProfileBuilder(type_, resource(pid), START_NS)
    thread = attributes({"thread.id": pid, "thread.name": "main"})
    for stack, value in (
        ((kernel("flash_fwd_kernel"), *LAUNCH, *FORWARD), 9_000),
        ((kernel("ampere_sgemm_128x64_tn"), *GEMM, *FORWARD), 6_400),
        ((kernel("softmax_warp_forward"), *LAUNCH, *FORWARD), 2_100),
        ((kernel("ampere_sgemm_128x64_tn"), *GEMM, *MLP), 7_800),
        ((kernel("vectorized_elementwise_kernel<4, GeluFunctor>"), *LAUNCH, *MLP), 3_500),
        ((kernel("ampere_sgemm_128x64_nt"), *GEMM, *BACKWARD), 12_300),
        ((kernel("flash_bwd_kernel"), *LAUNCH, *BACKWARD), 9_100),
        ((kernel("vectorized_elementwise_kernel<4, MulFunctor>"), *LAUNCH, *BACKWARD), 4_200),
        ((kernel("multi_tensor_apply_kernel<AdamW>"), *LAUNCH, *OPTIMIZER), 5_600),
        ((kernel("copy_kernel"), *LAUNCH, *LOADER), 1_300),
        ((kernel("fill_kernel"), *LAUNCH, native("", 0x7FE0, STRIPPED), truncation("no unwind row")), 900),
    ):
        if not any(frame.function == skip for frame in stack):
            builder.add(stack, value * scale, thread, LINK if value == 9_000 else None)
    return builder.build(START_NS + 30_000_000_000)


HOSTILE_NAMES = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "a;b\nc\rd\te\x00f\x1b[31mred",
    "\ud800lone\udfff",
    "\u202eright to left",
    "\u2028line separator",
    "@data@ @script@ $1 \\1 ${x}",
    "x" * 65_536,
    "日本語::関数<🔥>",
    "__proto__",
)


def hostile() -> Profile:
    """Return a profile whose every name tries something."""
    builder = ProfileBuilder(GPU_LAUNCHES, resource(1, "</title><script>alert(1)</script>"), START_NS)
    for i, name in enumerate(HOSTILE_NAMES):
        mapping = FileMapping(name, build_id="ee" * 20, start=2**64 - 1, end=2**64 - 1)
        leaf = Frame(FrameKind.NATIVE, name, name, 2**40, mapping, 2**64 - 1)
        builder.add((leaf, Frame(FrameKind.CPYTHON, name, name, -1)), i + 1, attributes({name[:100]: name}))
    return builder.build(START_NS + 1)
