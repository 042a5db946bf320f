"""Launches while its own Python frames and stack are nonsense, then puts them right again.

hostile_frames.py HELPER OFFSETS: OFFSETS is the JSON of {"frame": path of offsets from the thread state to the current
frame, "previous": ..., "code": ...}, as the agent's layout has them. Says "ready"; after a line of its input launches
each kind of nonsense, and says {"kernels": [names]}.
"""

import ctypes
import json
import sys

HELPER, OFFSETS = ctypes.PyDLL(sys.argv[1]), json.loads(sys.argv[2])
CU = ctypes.CDLL("libcuda.so.1")
LAUNCH = ctypes.cast(CU.cuLaunchKernel, ctypes.c_void_p)
U64 = ctypes.c_uint64
HELPER.launch_with.argtypes = [ctypes.c_void_p, ctypes.c_void_p, U64, U64]
HELPER.launch_below_frame_pointer.argtypes = [ctypes.c_void_p, ctypes.c_void_p, U64, ctypes.c_int]
ctypes.pythonapi.PyThreadState_Get.restype = U64

NONSENSE = {
    "null": 0,
    "low": 0x1000,
    "odd": 0x7F0000000003,
    "kernel": 0xFFFF800000000000,
    "all_ones": 2**64 - 1,
    "not_canonical": 0x0123456789ABCDE0,
}
RBP = dict(NONSENSE, itself=2048, above_itself=2048 + 8, below_itself=2048 - 64)


def word(address):
    return U64.from_address(address).value


def callers_frame():
    address = ctypes.pythonapi.PyThreadState_Get()
    for offset in [*OFFSETS["frame"], OFFSETS["previous"], OFFSETS["previous"]]:
        address = word(address + offset)
    return address


def kernels():
    frames = {"code_" + name: ("code", value) for name, value in NONSENSE.items()}
    frames.update({"previous_" + name: ("previous", value) for name, value in NONSENSE.items()})
    frames.update(previous_itself=("previous", "itself"), previous_code=("previous", "code"))
    return frames, {"rbp_" + name: value for name, value in RBP.items()}


def check(result):
    assert result == 0, result


def handles(names):
    context, module = ctypes.c_void_p(), ctypes.c_void_p()
    check(CU.cuInit(0))
    check(CU.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(CU.cuCtxSetCurrent(context))
    entries = "".join(".visible .entry " + name + "()\n{ ret; }\n" for name in names)
    source = ".version 8.0\n.target sm_90\n.address_size 64\n" + entries
    check(CU.cuModuleLoadData(ctypes.byref(module), source.encode() + b"\0"))
    found = {}
    for name in names:
        found[name] = ctypes.c_void_p()
        check(CU.cuModuleGetFunction(ctypes.byref(found[name]), module, name.encode()))
    return found


def launch_everything():
    frames, pointers = kernels()
    handle = handles([*frames, *pointers])
    for name, (field, wanted) in frames.items():
        frame = callers_frame()
        value = {"itself": frame, "code": word(frame + OFFSETS["code"])}.get(wanted, wanted)
        check(HELPER.launch_with(LAUNCH, handle[name], frame + OFFSETS[field], value))
    for name, value in pointers.items():
        check(HELPER.launch_below_frame_pointer(LAUNCH, handle[name], value, 100))
    print(json.dumps({"event": "phase", "kernels": sorted(handle)}), flush=True)


if __name__ == "__main__":
    print(json.dumps({"event": "ready"}), flush=True)
    for _ in sys.stdin:
        launch_everything()
