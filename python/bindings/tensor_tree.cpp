#include "bindings/tensor_tree.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdlib>

namespace py = pybind11;

namespace weft::bindings {

namespace {

/// Builds one tree, and advances both arguments past it.
py::object next_tree(const char*& structure, const at::Tensor*& leaf) {
  const char kind = *structure++;
  if (kind == 'N') return py::none();
  if (kind == '*') return py::reinterpret_steal<py::object>(THPVariable_Wrap(*leaf++));
  if (kind == '{') {
    py::dict items;
    while (*structure != '}') {
      char* name = nullptr;
      const auto size = std::strtol(structure, &name, 10);
      structure = ++name + size;
      const py::str key(name, static_cast<size_t>(size));
      items[key] = next_tree(structure, leaf);
    }
    ++structure;
    return items;
  }
  py::list items;
  while (*structure != ')' && *structure != ']') items.append(next_tree(structure, leaf));
  ++structure;
  return kind == '[' ? py::object(items) : py::object(py::tuple(items));
}

}  // namespace

bool TensorTree::flatten(PyObject* tree) {
  if (tree == Py_None) return has_none = true, structure += 'N', true;
  if (THPVariable_Check(tree)) {
    structure += '*';
    leaves.push_back(THPVariable_Unpack(tree));
    return true;
  }
  constexpr int kMostLevels = 32;
  if (level_ == kMostLevels) return false;
  ++level_;
  if (PyDict_CheckExact(tree)) return flatten_dict(tree);
  const bool is_tuple = PyTuple_CheckExact(tree);
  if (!is_tuple && !PyList_CheckExact(tree)) return false;
  structure += is_tuple ? '(' : '[';
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(tree); ++i)
    if (!flatten(PySequence_Fast_GET_ITEM(tree, i))) return false;
  structure += is_tuple ? ')' : ']';
  --level_;
  return true;
}

bool TensorTree::flatten_dict(PyObject* tree) {
  structure += '{';
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t place = 0; PyDict_Next(tree, &place, &key, &value) != 0;) {
    Py_ssize_t size = 0;
    const char* name = PyUnicode_CheckExact(key) ? PyUnicode_AsUTF8AndSize(key, &size) : nullptr;
    if (name == nullptr) return PyErr_Clear(), false;
    structure += std::to_string(size) + ':';
    structure.append(name, static_cast<size_t>(size));
    if (!flatten(value)) return false;
  }
  structure += '}';
  --level_;
  return true;
}

py::object unflatten(const std::string& structure, const at::Tensor* leaves) {
  const char* rest = structure.c_str();
  return next_tree(rest, leaves);
}

}  // namespace weft::bindings
