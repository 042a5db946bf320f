/* Runs a shared CPython: `python_launcher LIBPYTHON ARGUMENTS...`. Built and placed by tests/ground/sid.sh. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *lib = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    int (*run)(int, char **) = lib ? (int (*)(int, char **))dlsym(lib, "Py_BytesMain") : 0;
    if (!run) {
        puts(dlerror());
        return 1;
    }
    argv[1] = argv[0];
    return run(argc - 1, argv + 1);
}
