/*
 * bankmodule.c - the bank as an extension module of Python. Its function releases the interpreter's lock, so that other
 * threads of the program run meanwhile: what the module's own lock guards is up to the module.
 */
#include <Python.h>

#include "bank.h"

static PyObject *transfer_for_python(PyObject *module, PyObject *unused)
{
    long balance;

    (void)module;
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    balance = transfer_during_audit();
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(balance);
}

static PyMethodDef functions[] = {
    {"transfer_during_audit", transfer_for_python, METH_NOARGS, "Transfer 100 while an audit charges its fee."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef bank = {
    PyModuleDef_HEAD_INIT, .m_name = "bank", .m_size = -1, .m_methods = functions,
};

PyMODINIT_FUNC PyInit_bank(void)
{
    return PyModule_Create(&bank);
}
