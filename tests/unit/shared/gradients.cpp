#include "gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "interpreter/interpreter.h"
#include "ir/text/parser.h"
#include "ir/text/printer.h"
#include "random_program.h"

namespace weft::testing {

using interpreter::Array;
using interpreter::evaluate;

double difference(const Arrays& a, const Arrays& b) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinite;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].sizes != b[i].sizes || a[i].dtype != b[i].dtype) return kInfinite;
    std::vector<double> x = a[i].to_doubles(), y = b[i].to_doubles();
    for (size_t k = 0; k < x.size(); ++k) {
      if (std::isnan(x[k]) != std::isnan(y[k])) return kInfinite;
      if (std::isnan(x[k]) || x[k] == y[k]) continue;
      worst = std::max(worst, std::fabs(x[k] - y[k]) / (1 + std::max(std::fabs(x[k]), std::fabs(y[k]))));
    }
  }
  return worst;
}

Arrays random_cotangents(const ir::Program& program, const ir::Bindings& bindings, uint64_t seed) {
  ir::Program outputs;
  outputs.values = program.values;
  outputs.body.args = program.body.results;
  return random_inputs(outputs, bindings, seed);
}

std::vector<bool> floating_inputs(const ir::Program& program) {
  std::vector<bool> wanted;
  for (ir::ValueId input : program.body.args) wanted.push_back(is_floating(program.type(input).dtype));
  return wanted;
}

Arrays gradients(const ir::Program& program, const std::vector<bool>& wanted, const Arrays& inputs,
                 const Arrays& cotangents, passes::Keep keep) {
  passes::Vjp vjp = passes::vjp(program, wanted, keep);
  Arrays results = evaluate(ir::parse(ir::print(vjp.forward)), inputs);
  size_t outputs = program.body.results.size();
  EXPECT_EQ(results.size(), outputs + static_cast<size_t>(vjp.residuals));
  EXPECT_EQ(difference(Arrays(results.begin(), results.begin() + static_cast<int64_t>(outputs)),
                       evaluate(program, inputs)) < 1e-9,
            true);
  Arrays arguments;
  for (int64_t i : vjp.saved_inputs) arguments.push_back(inputs[static_cast<size_t>(i)]);
  for (int64_t i : vjp.saved_outputs) arguments.push_back(results[static_cast<size_t>(i)]);
  arguments.insert(arguments.end(), results.begin() + static_cast<int64_t>(outputs), results.end());
  arguments.insert(arguments.end(), cotangents.begin(), cotangents.end());
  return evaluate(ir::parse(ir::print(vjp.backward)), arguments);
}

namespace {

double inner_product(const Array& a, const Array& b) {
  if (!is_floating(a.dtype)) return 0;
  std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

double objective(const ir::Program& program, const Arrays& inputs, const Arrays& cotangents) {
  Arrays outputs = evaluate(program, inputs);
  double sum = 0;
  for (size_t i = 0; i < outputs.size(); ++i) sum += inner_product(outputs[i], cotangents[i]);
  return sum;
}

double slope(const ir::Program& program, const Arrays& inputs, const Arrays& cotangents, size_t input,
             const Array& direction, double step) {
  auto moved = [&](double by) {
    Arrays all = inputs;
    auto* to = all[input].data<double>();
    for (int64_t k = 0; k < direction.count(); ++k) to[k] += by * direction.data<double>()[k];
    return objective(program, all, cotangents);
  };
  return (moved(step) - moved(-step)) / (2 * step);
}

}  // namespace

double gradient_error(const ir::Program& program, const Arrays& inputs, const Arrays& cotangents,
                      const Arrays& gradients) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  double worst = 0;
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_floating(inputs[i].dtype)) continue;
    Array direction(DType::kF64, inputs[i].sizes);
    for (int64_t k = 0; k < direction.count(); ++k) direction.data<double>()[k] = normal(random);
    double found = inner_product(gradients.at(next++), direction);
    double coarse = slope(program, inputs, cotangents, i, direction, 1e-5);
    double fine = slope(program, inputs, cotangents, i, direction, 2e-6);
    if (std::fabs(coarse - fine) > 1e-6 * (1 + std::fabs(fine))) continue;
    worst = std::max(worst, std::fabs(found - coarse) / (1 + std::fabs(coarse)));
  }
  return worst;
}

}  // namespace weft::testing
