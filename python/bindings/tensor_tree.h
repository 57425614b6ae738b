#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <string>
#include <vector>

namespace weft::bindings {

/// A tree of tuples, lists and dicts with string keys: its tensors, and its structure, such as "(*[*N]{3:key*})", with
/// N for None.
struct TensorTree {
  std::string structure;
  std::vector<at::Tensor> leaves;
  bool has_none = false;

  /// False if the tree has other nodes, or is too deep, as a list that contains itself is.
  bool flatten(PyObject* tree);

 private:
  bool flatten_dict(PyObject* tree);

  int level_ = 0;
};

/// The tree of a structure and as many tensors as it has.
pybind11::object unflatten(const std::string& structure, const at::Tensor* leaves);

}  // namespace weft::bindings
