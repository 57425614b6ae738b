// The extension module weft/explanation/_C: Dynamo's texts taken apart, and statistics of measurements.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "explain/break_text.h"
#include "explain/statistics.h"
#include "explain/timeline.h"

namespace py = pybind11;

namespace weft {
namespace {

using explain::Interval;

py::tuple tuple_of(const Interval& interval) { return py::make_tuple(interval.median, interval.low, interval.high); }

py::dict dict_of(const explain::BreakText& text) {
  py::list path;
  for (const explain::Frame& frame : text.path) {
    path.append(py::make_tuple(frame.file, frame.line, frame.function, frame.code));
  }
  py::dict result;
  result["type"] = text.type;
  result["code"] = text.code;
  result["explanation"] = text.explanation;
  result["hints"] = text.hints;
  result["context"] = text.context;
  result["skipped"] = text.skipped;
  result["skipped_by"] = text.skipped_by;
  result["path"] = path;
  return result;
}

using Spans = std::vector<std::tuple<int, double, double, bool>>;

py::list gaps(const std::vector<std::tuple<double, double, Spans>>& steps) {
  std::vector<explain::Step> read;
  for (const auto& [begin, end, spans] : steps) {
    explain::Step& step = read.emplace_back();
    step.begin = begin;
    step.end = end;
    for (const auto& [graph, first, last, backward] : spans) step.spans.push_back({graph, first, last, backward});
  }
  py::list result;
  for (const explain::Gap& gap : explain::gaps(read)) {
    result.append(py::make_tuple(gap.graph, gap.backward, gap.hits, tuple_of(gap.seconds)));
  }
  return result;
}

PYBIND11_MODULE(_C, m) {
  m.def(
      "parse_break", [](const std::string& payload) { return dict_of(explain::parse_break(payload)); },
      py::arg("payload"));
  m.def("gaps", &gaps, py::arg("steps"));
  m.def(
      "quantile",
      [](const std::vector<double>& values, double fraction) { return explain::quantile(values, fraction); },
      py::arg("values"), py::arg("fraction"));
  m.def(
      "median_interval", [](const std::vector<double>& values) { return tuple_of(explain::median_interval(values)); },
      py::arg("values"));
  m.def(
      "paired_difference",
      [](const std::vector<double>& before, const std::vector<double>& after) {
        return tuple_of(explain::paired_difference(before, after));
      },
      py::arg("before"), py::arg("after"));
  m.def(
      "rank_correlation",
      [](const std::vector<double>& xs, const std::vector<double>& ys) { return explain::rank_correlation(xs, ys); },
      py::arg("xs"), py::arg("ys"));
}

}  // namespace
}  // namespace weft
