// The extension module weft/verification/_C: the comparison of recurrent layers with another implementation's answer.

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <utility>

#include "base/error.h"
#include "verify/compare.h"
#include "verify/diagnosis/diagnose.h"

namespace py = pybind11;

namespace weft {
namespace {

using Array = py::array_t<double, py::array::c_style | py::array::forcecast>;

std::vector<double> vector_of(const py::object& object) {
  if (object.is_none()) return {};
  const auto array = object.cast<Array>();
  return {array.data(), array.data() + array.size()};
}

verify::Matrix matrix_of(const py::object& object) {
  if (object.is_none()) return {};
  const auto array = object.cast<Array>();
  check(array.ndim() == 2, "a matrix has two dimensions, got {}", array.ndim());
  return {array.shape(0), array.shape(1), vector_of(array)};
}

verify::Activation activation_of(const py::handle& object) {
  const auto [name, alpha, beta] = object.cast<std::tuple<std::string, double, double>>();
  return verify::activation_named(name, alpha, beta);
}

verify::Direction direction_of(const py::dict& from) {
  verify::Direction direction;
  direction.weight_x = matrix_of(from["weight_x"]);
  direction.weight_h = matrix_of(from["weight_h"]);
  direction.bias_x = vector_of(from["bias_x"]);
  direction.bias_h = vector_of(from["bias_h"]);
  direction.projection = matrix_of(from["projection"]);
  direction.peepholes = vector_of(from["peepholes"]);
  direction.norm_x = vector_of(from["norm_x"]);
  direction.norm_h = vector_of(from["norm_h"]);
  direction.norm_c = vector_of(from["norm_c"]);
  direction.norm_c_bias = vector_of(from["norm_c_bias"]);
  direction.h0 = matrix_of(from["h0"]);
  direction.c0 = matrix_of(from["c0"]);
  direction.reverse = from["reverse"].cast<bool>();
  return direction;
}

template <typename Enum>
Enum named(const py::object& object, std::initializer_list<std::pair<const char*, Enum>> names) {
  const auto wanted = object.cast<std::string>();
  for (const auto& [name, value] : names)
    if (wanted == name) return value;
  user_error("there is no '{}' here", wanted);
}

verify::Layer layer_of(const py::dict& from) {
  verify::Layer layer;
  verify::Cell& cell = layer.cell;
  cell.kind = named<verify::Kind>(
      from["kind"], {{"GRU", verify::Kind::kGru}, {"LSTM", verify::Kind::kLstm}, {"RNN", verify::Kind::kRnn}});
  cell.reset_after = from["reset_after"].cast<bool>();
  cell.gate = activation_of(from["gate_activation"]);
  cell.activation = activation_of(from["activation"]);
  cell.output = activation_of(from["output_activation"]);
  cell.clip = from["clip"].cast<double>();
  cell.cell_clip = from["cell_clip"].cast<double>();
  cell.coupled = named<verify::Coupled>(
      from["coupled"],
      {{"", verify::Coupled::kNone}, {"input", verify::Coupled::kInput}, {"forget", verify::Coupled::kForget}});
  cell.zoneout = from["zoneout"].cast<std::array<double, 2>>();
  cell.norm_eps = from["norm_eps"].cast<std::optional<double>>();
  layer.merge = named<verify::Merge>(from["merge"], {{"concat", verify::Merge::kConcat},
                                                     {"sum", verify::Merge::kSum},
                                                     {"mul", verify::Merge::kMul},
                                                     {"ave", verify::Merge::kAve}});
  for (const py::handle& direction : from["directions"])
    layer.directions.push_back(direction_of(py::cast<py::dict>(direction)));
  return layer;
}

std::vector<verify::Layer> layers_of(const py::list& from) {
  std::vector<verify::Layer> layers;
  for (const py::handle& layer : from) layers.push_back(layer_of(py::cast<py::dict>(layer)));
  verify::check(layers);
  return layers;
}

verify::Recording record(const py::list& layers, const Array& x) {
  check(x.ndim() == 3, "x should be [T, B, I], got {} dimensions", x.ndim());
  return verify::record(layers_of(layers), vector_of(x), x.shape(0), x.shape(1));
}

verify::Recorded recorded_of(const py::dict& from) {
  verify::Recorded result;
  result.h = vector_of(from["h"]);
  result.c = vector_of(from["c"]);
  size_t index = 0;
  for (const py::handle& gate : from["gates"]) result.gates.at(index++) = vector_of(py::cast<py::object>(gate));
  result.hn = vector_of(from["hn"]);
  result.cn = vector_of(from["cn"]);
  return result;
}

/// A recording made elsewhere: x [T, B, I]; recorded values by layer and direction; a merged result of the last layer.
verify::Recording recording(const Array& x, const std::vector<std::vector<py::dict>>& layers, const py::object& merged,
                            const std::string& dtype) {
  check(x.ndim() == 3, "x should be [T, B, I], got {} dimensions", x.ndim());
  verify::Recording result;
  result.steps = x.shape(0);
  result.batch = x.shape(1);
  const std::optional<DType> type = dtype_named(dtype);
  check(type.has_value(), "there is no dtype {}", dtype);
  result.precision = verify::Precision::of(*type);
  result.x = vector_of(x);
  for (const auto& layer : layers) {
    result.layers.emplace_back();
    for (const py::dict& direction : layer) result.layers.back().push_back(recorded_of(direction));
  }
  result.merged = vector_of(merged);
  return result;
}

py::object to_python(const std::optional<verify::Place>& place) {
  if (!place) return py::none();
  py::dict result;
  result["layer"] = place->layer;
  result["direction"] = place->direction;
  result["step"] = place->step;
  result["turn"] = place->turn;
  result["quantity"] = place->quantity;
  result["row"] = place->row;
  result["unit"] = place->unit;
  result["layers"] = place->layers;
  result["recorded"] = place->recorded;
  result["bound"] = place->bound;
  return result;
}

/// Throws the user's error where a recording doesn't fit the layers.
void check_fit(const std::vector<verify::Layer>& layers, const verify::Recording& recording) {
  check(recording.layers.size() == layers.size(), "the recording has {} layers, but there are {}",
        recording.layers.size(), layers.size());
  const int64_t rows = recording.steps * recording.batch;
  const auto size_is = [](const std::vector<double>& array, int64_t size, const char* name, size_t layer) {
    check(array.empty() || static_cast<int64_t>(array.size()) == size, "layer {}: {} should have {} elements, got {}",
          layer, name, size, array.size());
  };
  size_is(recording.x, rows * layers[0].inputs(), "x", 0);
  check(recording.x.size() == static_cast<size_t>(rows * layers[0].inputs()), "x should have {} inputs",
        layers[0].inputs());
  for (size_t index = 0; index < layers.size(); ++index) {
    const verify::Layer& layer = layers[index];
    check(recording.layers[index].size() == layer.directions.size(),
          "layer {}: the recording has {} directions, but the layer has {}", index, recording.layers[index].size(),
          layer.directions.size());
    if (index < recording.inputs.size()) size_is(recording.inputs[index], rows * layer.inputs(), "input", index);
    for (size_t direction = 0; direction < layer.directions.size(); ++direction) {
      const verify::Recorded& each = recording.layers[index][direction];
      size_is(each.h, rows * layer.outputs(), "h", index);
      size_is(each.c, rows * layer.hidden(), "c", index);
      for (const auto& gate : each.gates) size_is(gate, rows * layer.hidden(), "a gate", index);
      size_is(each.hn, recording.batch * layer.outputs(), "hn", index);
      size_is(each.cn, recording.batch * layer.hidden(), "cn", index);
      for (const verify::Matrix* state : {&layer.directions[direction].h0, &layer.directions[direction].c0})
        check(state->rows <= 1 || state->rows == recording.batch,
              "layer {}: the initial state has {} rows, but the input has {}", index, state->rows, recording.batch);
    }
  }
  size_is(recording.merged, rows * layers.back().width(), "y", layers.size() - 1);
}

py::list compare(const py::list& layer_list, const verify::Recording& recording) {
  const std::vector<verify::Layer> layers = layers_of(layer_list);
  check_fit(layers, recording);
  verify::Comparison comparison;
  std::vector<std::vector<verify::Drift>> drift;
  {
    const py::gil_scoped_release release;
    comparison = verify::compare(layers, recording);
    drift = verify::drift(layers, recording);
  }
  py::list tracks;
  for (const verify::Track& track : comparison.tracks) {
    py::dict each;
    each["layer"] = track.layer;
    each["direction"] = track.direction;
    each["defect"] = track.defect;
    each["bound"] = track.bound;
    each["drift"] = track.defect;
    each["largest"] = py::none();
    if (track.direction < 2) {
      const verify::Drift& own = drift[track.layer][track.direction];
      each["drift"] = own.steps;
      if (own.step >= 0) each["largest"] = py::make_tuple(own.step, own.row, own.unit);
    }
    each["first"] = to_python(track.first);
    tracks.append(each);
  }
  return tracks;
}

/// [T, B, columns]: how far rounding to `dtype` can move the last layer's results.
py::array_t<double> rounding_bound(const py::list& layer_list, const Array& x, const std::string& dtype) {
  const std::vector<verify::Layer> layers = layers_of(layer_list);
  check(x.ndim() == 3 && x.shape(2) == layers[0].inputs(), "x should be [T, B, {}]", layers[0].inputs());
  const std::optional<DType> type = dtype_named(dtype);
  check(type.has_value(), "there is no dtype {}", dtype);
  const verify::Values values =
      verify::outputs(layers, vector_of(x), x.shape(0), x.shape(1), verify::Precision::of(*type));
  return py::array_t<double>({x.shape(0), x.shape(1), static_cast<py::ssize_t>(layers.back().width())},
                             values.error.data());
}

py::list to_python(const verify::Changes& changes) {
  py::list result;
  for (const verify::Change& change : changes) result.append(py::make_tuple(change.name, change.detail));
  return result;
}

/// For tests: the layers' results on x after a known change: the first with that name whose form begins with `detail`.
/// None if there is none.
py::object changed_layers(const py::list& layer_list, const Array& x, const std::string& name,
                          const std::string& detail) {
  const std::vector<verify::Layer> layers = layers_of(layer_list);
  verify::Problem problem{layers, verify::record(layers, vector_of(x), x.shape(0), x.shape(1))};
  for (const verify::Change& change : verify::known_changes(problem, {})) {
    const bool form = change.detail.starts_with(detail) || change.detail.ends_with(", in the " + detail);
    if (change.name != name || !form || change.solve) continue;
    change.apply(problem);
    return py::cast(verify::record(problem.layers, vector_of(x), x.shape(0), x.shape(1)));
  }
  return py::none();
}

/// The diagnoses, and what is left of `budget`.
py::tuple diagnose(const py::list& layer_list, const verify::Recording& recording, double budget, int most) {
  const std::vector<verify::Layer> layers = layers_of(layer_list);
  check_fit(layers, recording);
  std::vector<verify::Diagnosis> diagnoses;
  {
    const py::gil_scoped_release release;
    diagnoses = verify::diagnose(layers, recording, budget, most, [] {  // Ctrl-C ends a long search
      const py::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    });
  }
  py::list result;
  for (const verify::Diagnosis& diagnosis : diagnoses) {
    py::dict each;
    each["layer"] = diagnosis.scope.layer;
    each["direction"] = diagnosis.scope.direction;
    each["changes"] = to_python(diagnosis.changes);
    py::list also;
    for (const verify::Changes& changes : diagnosis.also) also.append(to_python(changes));
    each["also"] = also;
    py::list untried;
    for (const verify::Untried& sets : diagnosis.untried)
      untried.append(py::make_tuple(sets.count, sets.left, sets.all, sets.names));
    each["untried"] = untried;
    result.append(each);
  }
  return py::make_tuple(result, budget);
}

}  // namespace
}  // namespace weft

PYBIND11_MODULE(_C, m) {
  using namespace weft;
  m.doc() = "The compiled half of weft.verification.";
  py::class_<verify::Recording>(m, "Recording", "What an implementation was given and what it answered.")
      .def(
          "in_precision_of",
          [](verify::Recording self, const std::string& dtype) {
            const std::optional<DType> type = dtype_named(dtype);
            check(type.has_value(), "there is no dtype {}", dtype);
            self.precision = verify::Precision::of(*type);
            return self;
          },
          py::arg("dtype"), "The same, forgiving what rounding to a dtype does.")
      .def("h", [](const verify::Recording& self, size_t layer, size_t direction) {
        return self.layers.at(layer).at(direction).h;
      });
  m.def("record_layers", &record, py::arg("layers"), py::arg("x"));
  m.def("recording", &recording, py::arg("x"), py::arg("layers"), py::arg("merged"), py::arg("dtype"));
  m.def("rounding_bound", &rounding_bound, py::arg("layers"), py::arg("x"), py::arg("dtype"));
  m.def("compare_layers", &compare, py::arg("layers"), py::arg("recording"));
  m.def("changed_layers", &changed_layers, py::arg("layers"), py::arg("x"), py::arg("name"), py::arg("detail"));
  m.def("diagnose_layers", &diagnose, py::arg("layers"), py::arg("recording"), py::arg("budget"), py::arg("most") = 3);
}
