"""Code objects that are made, called and freed as fast as the interpreter can; each file is named as its function.

Runs on CPython 3.8 and later, prints a line when it begins, and until it is killed.
"""

N = 0
print("ready", flush=True)
while True:
    N += 1
    name = f"f{N}_{'x' * (N * 37 % 200)}"
    body = "    pass\n" * (N % 7) + f"    return {name}(d - 1) if d else sum([i for i in range(20)])\n"
    scope = {}
    exec(compile(f"def {name}(d):\n{body}", f"/made/{name}.py", "exec"), scope)
    scope[name](3)
