# The odd ways of calling are the point, and 3.8 must run them.
# ruff: noqa: B018, C417, PLC3002, PLW0108, RET504, UP028, UP033
"""Every way in which Python comes to call something: each takes a function, and calls it once.

For CPython 3.8 and later. What is called may launch and return, or rest for ever.
"""

import _thread
import asyncio
import ctypes
import functools
import sys

WAYS = {}
DEPTH = 140


def way(run):
    WAYS[run.__name__] = run
    return run


@way
def nested(call):
    def outer(x):
        return inner(x + 1)

    def inner(x):
        call()
        return x

    outer(1)


def down(n, call):
    if n:
        return down(n - 1, call)
    return call()


@way
def recursion(call):
    down(DEPTH, call)


@way
def generators(call):
    def leaf():
        call()
        yield 1

    def middle():
        yield from leaf()

    def top():
        for x in middle():
            yield x

    for _ in top():
        pass


@way
def generator_run_by_c(call):
    def items():
        yield 1
        call()
        yield 2

    list(items())


@way
def coroutines(call):
    async def source():
        yield 1
        call()
        yield 2

    async def consume():
        async for _ in source():
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(consume(), asyncio.sleep(0))

    asyncio.new_event_loop().run_until_complete(main())


@way
def lambdas(call):
    (lambda f: f())(lambda: call())


@way
def comprehension(call):
    [call() for _ in range(1)]


@way
def nested_comprehension_in_lambda(call):
    list(map(lambda n: {k: call() for k in range(n)}, [1]))


@way
def class_body(call):
    class Body:
        value = call()


@way
def executed(call):
    source = "def made():\n\n    call()\n\nmade()\n"
    exec(compile(source, "<made at run time>", "exec"), {"call": call})


@way
def unicode_names(call):
    then = call
    for name in ("caf\xe9", "\u0444\u0443\u043d\u043a\u0446\u0438\u044f", "\U00020000\U00020001", "plain"):
        source = f"def {name}(then):\n    then()\n"
        scope = {}
        exec(compile(source, f"/tmp/{name}.py", "exec"), scope)
        then = functools.partial(scope[name], then)
    then()


@way
def long_function(call):
    lines = ["def long(gate):", "    x = 0"]
    lines += [f"    x += {n}" for n in range(300)]
    lines += [""] * 400
    lines += [
        "    x = max(",
        "        x,",
        *[""] * 150,
        "        gate(",
        "            ) or 0,",
        "    )",
        "    return x",
    ]
    scope = {}
    exec(compile("\n".join(lines), "long.py", "exec"), scope)
    scope["long"](call)


@way
def multi_line_call(call):
    def taking(*arguments, **named):
        pass

    taking(
        1,
        (
            2,
            call(),
        ),
        last=[
            3,
        ],
    )


@way
def warm_init(call):
    class Thing:
        def __init__(self, rest):
            if rest:
                call()

    for n in range(3000):
        Thing(n == 2999)


@way
def warm_attributes(call):
    class Thing:
        rest = False

        @property
        def value(self):
            return self[0]

        def __getitem__(self, key):
            return self.missing

        def __getattr__(self, name):
            if self.rest:
                call()
            return 1

    thing = Thing()
    for n in range(3000):
        thing.rest = n == 2999
        thing.value


@way
def finalizer(call):
    class Thing:
        def __del__(self):
            call()

    thing = Thing()
    del thing


@way
def c_calls_python(call):
    class Item:
        def __lt__(self, other):
            return functools.reduce(lambda a, b: call(), [1, 2])

    sorted([Item(), Item()], key=lambda item: item)


@way
def ctypes_callback(call):
    signature = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def compare(a, b):
        call()
        return 0

    ctypes.CDLL(None).qsort((ctypes.c_int * 2)(2, 1), 2, 4, signature(compare))


@way
def exception_handling(call):
    def fail():
        try:
            raise ValueError
        except ValueError:
            with _thread.allocate_lock():
                try:
                    return 1
                finally:
                    call()

    fail()


@way
def traced(call):
    def trace(frame, event, argument):
        if frame.f_code is body.__code__ and event == "line" and frame.f_lineno == body.__code__.co_firstlineno + 2:
            call()
        return trace

    def body():
        a = 1
        return a

    sys.settrace(trace)
    body()
    sys.settrace(None)


@way
def profiled(call):
    def profile(frame, event, argument):
        if event == "call" and frame.f_code is body.__code__:
            call()

    def body():
        return 1

    sys.setprofile(profile)
    body()
    sys.setprofile(None)


@way
def methods(call):
    class Method:
        @classmethod
        def of_class(cls):
            return cls().of_instance()

        def of_instance(self):
            return self.of_nobody()

        @staticmethod
        @functools.lru_cache(maxsize=None)
        def of_nobody():
            call()

        def __call__(self):
            return self.of_class()

    Method()()
