/* SPDX-License-Identifier: Apache-2.0
 * linked_python: holds a static CPython, and a module `linked` that launches: `linked_python linked_python.py`. Of CPython
 * it exports nothing unless it is linked with -rdynamic, so that it can load no module of the standard library's in C.
 * As a library it is run by python_launcher.c. */
#include <Python.h>
#include <dlfcn.h>

static int (*launch_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
			    void **);

static int (*set_current)(void *);
static void *driver, *context;

static void *in_driver(const char *name)
{
	return driver ? dlsym(driver, name) : NULL;
}

/* load(names) -> handles of these kernels */
static PyObject *load(PyObject *self, PyObject *names)
{
	int (*init)(unsigned) = (int (*)(unsigned))in_driver("cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))in_driver("cuDevicePrimaryCtxRetain");
	int (*load_data)(void **, const void *) = (int (*)(void **, const void *))in_driver("cuModuleLoadData");
	int (*get)(void **, void *, const char *) = (int (*)(void **, void *, const char *))in_driver("cuModuleGetFunction");
	void *module, *function;
	PyObject *found = PyList_New(0);

	launch_kernel = in_driver("cuLaunchKernel");
	set_current = in_driver("cuCtxSetCurrent");
	if (!launch_kernel || init(0) || retain(&context, 0) || set_current(context) || load_data(&module, "image"))
		return PyErr_Format(PyExc_OSError, "no driver");
	for (Py_ssize_t i = 0; i < PyList_Size(names); i++) {
		if (get(&function, module, PyUnicode_AsUTF8(PyList_GetItem(names, i))))
			return PyErr_Format(PyExc_OSError, "no such kernel");
		PyList_Append(found, PyLong_FromVoidPtr(function));
	}
	return found;
}

/* launch(handle, released): with the GIL released, or held */
static PyObject *launch(PyObject *self, PyObject *arguments)
{
	void *function = PyLong_AsVoidPtr(PyTuple_GetItem(arguments, 0));
	PyThreadState *state = NULL;
	int failed;

	if (set_current(context))
		return PyErr_Format(PyExc_OSError, "no context");
	if (PyObject_IsTrue(PyTuple_GetItem(arguments, 1)))
		state = PyEval_SaveThread();
	failed = launch_kernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
	if (state)
		PyEval_RestoreThread(state);
	return PyLong_FromLong(failed);
}

static PyMethodDef methods[] = {
	{"load", load, METH_O, NULL}, {"launch", launch, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "linked", NULL, -1, methods, NULL, NULL, NULL, NULL};

static PyObject *make(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	return PyModule_Create(&module);
}

__attribute__((constructor)) static void add(void)
{
	PyImport_AppendInittab("linked", make);
}

int main(int argc, char **argv)
{
	return Py_BytesMain(argc, argv);
}
