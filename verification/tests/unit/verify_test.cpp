// The comparison of layers with a recording: bounds that hold and are not far off, places, and causes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "base/error.h"
#include "verify/compare.h"
#include "verify/diagnosis/diagnose.h"
#include "verify/step.h"

namespace weft::verify {
namespace {

using Function = Activation::Kind;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  double number(double scale = 1) { return std::normal_distribution<double>(0, scale)(engine_); }
  std::vector<double> numbers(int64_t size, double scale = 1) {
    std::vector<double> result(size);
    for (double& each : result) each = static_cast<float>(number(scale));
    return result;
  }
  Matrix matrix(int64_t rows, int64_t columns, double scale = 1) {
    return {rows, columns, numbers(rows * columns, scale)};
  }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

Layer random_layer(Random& random, Kind kind, int64_t inputs, int64_t hidden, int directions = 1) {
  Layer layer;
  layer.cell.kind = kind;
  const int64_t rows = gates_of(kind) * hidden;
  for (int index = 0; index < directions; ++index) {
    Direction direction;
    direction.weight_x = random.matrix(rows, inputs, 0.7);
    direction.weight_h = random.matrix(rows, hidden, 0.7);
    direction.bias_x = random.numbers(rows, 0.5);
    direction.bias_h = random.numbers(rows, 0.5);
    direction.reverse = index == 1;
    layer.directions.push_back(std::move(direction));
  }
  return layer;
}

// With a budget that none of these searches reaches.
std::vector<Diagnosis> diagnosed(const std::vector<Layer>& layers, const Recording& recording, int most = 3) {
  double budget = 10;
  std::vector<Diagnosis> found = diagnose(layers, recording, budget, most);
  for (const Diagnosis& each : found) EXPECT_TRUE(each.untried.empty());
  return found;
}

TEST(VerifyActivation, HasItsValues) {
  EXPECT_DOUBLE_EQ(apply({Function::kSigmoid}, 0), 0.5);
  EXPECT_DOUBLE_EQ(apply({Function::kHardSigmoid, 0.2, 0.5}, 1), 0.7);
  EXPECT_DOUBLE_EQ(apply({Function::kHardSigmoid, 0.2, 0.5}, 9), 1);
  EXPECT_DOUBLE_EQ(apply({Function::kElu, 2}, -1), 2 * std::expm1(-1));
  EXPECT_DOUBLE_EQ(apply({Function::kSoftsign}, -3), -0.75);
  EXPECT_NEAR(apply({Function::kGelu}, 1), 0.841344746068543, 1e-15);
  EXPECT_NEAR(apply({Function::kMish}, 1), 0.8650983882673103, 1e-15);
  EXPECT_NEAR(apply({Function::kLogSigmoid}, -800), -800, 1e-12);
  EXPECT_TRUE(std::isnan(apply({Function::kRelu}, NAN)));
  EXPECT_EQ(to_string({Function::kHardSigmoid, 0.2, 0.5}), "hard_sigmoid(0.2, 0.5)");
}

TEST(VerifyActivation, NamesAreListedWhenOneIsWrong) {
  try {
    activation_named("sigmoyd", 0, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no activation 'sigmoyd'; there are sigmoid, tanh, relu"),
              std::string::npos);
  }
}

TEST(VerifyActivation, SpreadBoundsWhatNeighboursDifferBy) {
  Random random(1);
  for (int kind = 0; kind <= static_cast<int>(Function::kLogSigmoid); ++kind) {
    const Activation activation{static_cast<Function>(kind), 0.3, 0.5};
    for (int sample = 0; sample < 300; ++sample) {
      const double x = random.number(3), radius = std::exp(random.number(3) - 3);
      const double bound = spread(activation, x, radius);
      for (const double part : {-1.0, -0.5, -0.1, 0.2, 0.7, 1.0}) {
        const double apart = std::abs(apply(activation, x + part * radius) - apply(activation, x));
        EXPECT_LE(apart, bound * (1 + 1e-12) + 1e-15) << to_string(activation) << " at " << x << " by " << radius;
      }
    }
  }
}

// A product summed in float32 in some order is within the bound, and the bound isn't many times the error seen.
TEST(VerifyBound, HoldsForAnyOrderOfSummation) {
  Random random(2);
  const Precision precision = Precision::of(DType::kF32);
  double closest = 0;
  for (const int64_t size : {1, 2, 7, 64, 300}) {
    for (int sample = 0; sample < 50; ++sample) {
      const Matrix matrix = random.matrix(1, size);
      Values x(size);
      x.value = random.numbers(size);
      const Values bounded = rounded(product(matrix, 0, 1, x), size, precision);
      std::vector<int64_t> order(size);
      for (int64_t index = 0; index < size; ++index) order[index] = index;
      std::shuffle(order.begin(), order.end(), random.engine());
      float sum = 0;
      for (const int64_t index : order)
        sum += static_cast<float>((*matrix.values)[index]) * static_cast<float>(x.value[index]);
      const double ratio = std::abs(sum - bounded.value[0]) / bounded.error[0];
      EXPECT_LE(ratio, 1);
      closest = std::max(closest, ratio);
    }
  }
  EXPECT_GT(closest, 0.05);
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// A GRU written independently, in float.
std::vector<double> gru_in_float(const Direction& d, const std::vector<double>& x, const std::vector<double>& h) {
  const auto hidden = static_cast<int64_t>(h.size());
  const auto row = [&](int64_t index, const Matrix& matrix, const std::vector<double>& vector) {
    float sum = 0;
    for (int64_t column = 0; column < matrix.columns; ++column)
      sum += static_cast<float>(matrix.row(index)[column]) * static_cast<float>(vector[column]);
    return sum;
  };
  std::vector<double> result;
  for (int64_t unit = 0; unit < hidden; ++unit) {
    float gates[3][2];
    for (int gate = 0; gate < 3; ++gate) {
      const int64_t index = gate * hidden + unit;
      gates[gate][0] = row(index, d.weight_x, x) + static_cast<float>(d.bias_x[index]);
      gates[gate][1] = row(index, d.weight_h, h) + static_cast<float>(d.bias_h[index]);
    }
    const float r = sigmoid(gates[0][0] + gates[0][1]), z = sigmoid(gates[1][0] + gates[1][1]);
    const float n = std::tanh(gates[2][0] + r * gates[2][1]);
    result.push_back(n + z * (static_cast<float>(h[unit]) - n));
  }
  return result;
}

TEST(VerifyBound, HoldsForAStepInFloat) {
  Random random(3);
  const Precision precision = Precision::of(DType::kF32);
  for (const auto& [inputs, hidden] : {std::pair(1, 1), std::pair(3, 7), std::pair(0, 5), std::pair(40, 64)}) {
    const Layer layer = random_layer(random, Kind::kGru, inputs, hidden);
    Values x(inputs), h(hidden), none;
    x.value = random.numbers(inputs);
    h.value = random.numbers(hidden, 0.5);
    const StepResult result = step(layer.cell, layer.directions[0], precision, {x, h, h, none});
    const std::vector<double> other = gru_in_float(layer.directions[0], x.value, h.value);
    for (int64_t unit = 0; unit < hidden; ++unit) {
      EXPECT_LE(std::abs(other[unit] - result.h.value[unit]), result.h.error[unit]);
      EXPECT_LT(result.h.error[unit], 1e-3);
    }
  }
}

TEST(VerifyBound, OverflowAndNaNAreNoNumbersToTrust) {
  const Precision half = Precision::of(DType::kF16);
  EXPECT_TRUE(std::isinf(with_rounding(0, 1, 70000, half)));
  EXPECT_TRUE(std::isinf(with_rounding(NAN, 1, 1, half)));
  EXPECT_THROW(Precision::of(DType::kI32), Error);
}

class VerifyKinds : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(All, VerifyKinds, ::testing::Values(Kind::kGru, Kind::kLstm, Kind::kRnn));

TEST_P(VerifyKinds, ARecordingAgreesWithItself) {
  Random random(4);
  for (const int64_t steps : {0, 1, 5})
    for (const int64_t batch : {1, 3}) {
      const std::vector<Layer> layers{random_layer(random, GetParam(), 3, 4, 2),
                                      random_layer(random, GetParam(), 8, 4)};
      const Recording recording = record(layers, random.numbers(steps * batch * 3), steps, batch);
      const Comparison comparison = compare(layers, recording);
      EXPECT_EQ(comparison.worst, 0);
      for (const Track& track : comparison.tracks) EXPECT_FALSE(track.first.has_value());
      EXPECT_TRUE(diagnosed(layers, recording).empty());
      ASSERT_EQ(comparison.tracks.size(), 3u);
      EXPECT_EQ(static_cast<int64_t>(comparison.tracks[1].defect.size()), steps);
    }
}

TEST_P(VerifyKinds, OneNumberThatIsWrongIsFoundAtItsPlace) {
  Random random(5);
  const std::vector<Layer> layers{random_layer(random, GetParam(), 3, 4, 2)};
  Recording recording = record(layers, random.numbers(6 * 2 * 3), 6, 2);
  recording.layers[0][1].h[(3 * 2 + 1) * 4 + 2] += 1e-9;  // step 3, row 1, unit 2, of the direction backwards
  const Comparison comparison = compare(layers, recording);
  ASSERT_TRUE(comparison.tracks[1].first.has_value());
  const Place& place = *comparison.tracks[1].first;
  EXPECT_EQ(place.direction, 1);
  EXPECT_EQ(place.step, 3);
  EXPECT_EQ(place.turn, 2);
  EXPECT_EQ(place.quantity, "h");
  EXPECT_EQ(place.row, 1);
  EXPECT_EQ(place.unit, 2);
  EXPECT_NEAR(place.recorded - place.layers, 1e-9, 1e-14);
  EXPECT_GT(comparison.tracks[1].defect[2], 0);  // the next one starts from the wrong state
  EXPECT_EQ(comparison.tracks[0].first, std::nullopt);
}

TEST_P(VerifyKinds, WhatIsntRecordedRunsOnByItself) {
  Random random(6);
  const std::vector<Layer> layers{random_layer(random, GetParam(), 3, 4), random_layer(random, GetParam(), 4, 4)};
  Recording recording = record(layers, random.numbers(5 * 3), 5, 1);
  recording.layers[0][0] = {};
  recording.layers[1][0].c.clear();
  for (auto& gate : recording.layers[1][0].gates) gate.clear();
  recording.inputs.clear();
  EXPECT_LE(compare(layers, recording).worst, 1);
  recording.layers[1][0].h[0] += 1e-6;
  EXPECT_GT(compare(layers, recording).worst, 1);
}

bool names(const Diagnosis& diagnosis, const Change& change) {
  std::vector<Changes> all = diagnosis.also;
  all.push_back(diagnosis.changes);
  return std::any_of(all.begin(), all.end(), [&](const Changes& changes) {
    return changes.size() == 1 && changes[0].name == change.name && changes[0].detail == change.detail;
  });
}

// Layers with a change made to them, as a recording: the search names a change that does the same. The whole product is
// sampled, with another sample for each kind.
TEST_P(VerifyKinds, ChangesAreFoundInWhatTheyMake) {
  Random random(7);
  std::vector<Layer> layers{random_layer(random, GetParam(), 4, 4)};
  if (GetParam() != Kind::kGru) layers[0].cell.norm_eps = 1e-5;
  if (GetParam() == Kind::kLstm) layers[0].directions[0].peepholes = random.numbers(12);
  layers[0].cell.clip = 0.7;
  layers[0].directions[0].h0 = random.matrix(1, 4);
  if (GetParam() == Kind::kLstm) layers[0].directions[0].c0 = random.matrix(1, 4);
  const Recording right = record(layers, random.numbers(5 * 2 * 4), 5, 2);
  const Problem problem{layers, right};
  int known = 0, tried = 0;
  for (const Change& change : known_changes(problem, {})) {
    // These changes alter the recording, and `record` knows no stale state; Python's tests inject them.
    if (change.solve || change.name.starts_with("stale") || change.name.ends_with("order") ||
        change.name == "batch_axis")
      continue;
    ++known;
    if (random.engine()() % 12 != 0) continue;
    Problem changed = problem;
    change.apply(changed);
    const Recording recording = record(changed.layers, right.x, 5, 2);
    const std::vector<Diagnosis> found = diagnosed(layers, recording, /*most=*/1);
    if (found.empty()) continue;  // the change changes nothing here
    ++tried;
    EXPECT_TRUE(names(found[0], change)) << change.name << " " << change.detail;
  }
  EXPECT_GT(known, GetParam() == Kind::kRnn ? 100 : 300);
  EXPECT_GT(tried, 6);
}

struct Named {
  Kind kind;
  std::string name, detail;
  void (*fault)(Layer&);
};

// Known reports, by the names in docs/verify.md.
const Named kNamed[] = {
    {Kind::kGru, "recurrent_bias", "missing, in gate n", [](Layer& layer) { layer.cell.faults[2].recurrent_bias = 0; }},
    {Kind::kGru, "recurrent_bias", "missing, in gates r, z",
     [](Layer& layer) { layer.cell.faults[0].recurrent_bias = layer.cell.faults[1].recurrent_bias = 0; }},
    {Kind::kGru, "recurrent_bias", "missing, in gate n; at step 0 only",
     [](Layer& layer) {
       layer.elsewhere = std::make_shared<const Layer>(layer);
       layer.steps = Steps::kFirst;
       layer.cell.faults[2].recurrent_bias = 0;
     }},
    {Kind::kGru, "biases_exchanged", "", [](Layer& layer) { layer.cell.biases = Biases::kExchanged; }},
    {Kind::kGru, "bias_inside_reset", "both biases", [](Layer& layer) { layer.cell.biases = Biases::kInside; }},
    {Kind::kGru, "clip", "0.3", [](Layer& layer) { layer.cell.clip = 0.3; }},
    {Kind::kLstm, "clip", "0.3, in gate g", [](Layer& layer) { layer.cell.faults[2].clip = 0.3; }},
    {Kind::kGru, "cell_clip", "0.25", [](Layer& layer) { layer.cell.cell_clip = 0.25; }},
    {Kind::kLstm, "cell_clip", "0.25", [](Layer& layer) { layer.cell.cell_clip = 0.25; }},
    {Kind::kLstm, "output_clip", "0.15", [](Layer& layer) { layer.cell.output_clip = 0.15; }},
    {Kind::kRnn, "zoneout", "0.125 of the old hidden state", [](Layer& layer) { layer.cell.zoneout[0] = 0.125; }},
    {Kind::kLstm, "forget_bias", "2.5 more", [](Layer& layer) { layer.cell.faults[1].offset = 2.5; }},
    {Kind::kGru, "gate_offset", "1 less, in gate z", [](Layer& layer) { layer.cell.faults[1].offset = -1; }},
    {Kind::kRnn, "recurrent_product", "times 0.5", [](Layer& layer) { layer.cell.faults[0].recurrent = 0.5; }},
    {Kind::kLstm, "input_bias", "times -1, in gate o", [](Layer& layer) { layer.cell.faults[3].input_bias = -1; }},
};

TEST(VerifyDiagnosis, WhatReportsWereAboutIsFoundByItsName) {
  Random random(13);
  for (const Named& named : kNamed) {
    const std::vector<Layer> layers{random_layer(random, named.kind, 3, 5)};
    std::vector<Layer> other = layers;
    named.fault(other[0]);
    const std::vector<Diagnosis> found = diagnosed(layers, record(other, random.numbers(8 * 2 * 3), 8, 2));
    ASSERT_EQ(found.size(), 1u);
    ASSERT_EQ(found[0].changes.size(), 1u) << named.name;
    EXPECT_EQ(found[0].changes[0].name, named.name);
    EXPECT_EQ(found[0].changes[0].detail, named.detail);
    EXPECT_TRUE(found[0].also.empty()) << named.name << ": also " << found[0].also[0][0].name;
  }
}

// h0 is 0 and b_hn is missing, so at step 0 r is multiplied by zero, whatever its own bias does.
TEST(VerifyDiagnosis, WhatCannotBeToldApartIsSaidTogether) {
  Random random(14);
  const std::vector<Layer> layers{random_layer(random, Kind::kGru, 3, 5)};
  std::vector<Layer> other = layers;
  kNamed[2].fault(other[0]);
  Recording recording = record(other, random.numbers(4 * 3), 4, 1);
  for (auto& gate : recording.layers[0][0].gates) gate.clear();
  const std::vector<Diagnosis> found = diagnosed(layers, recording);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].changes[0].detail, "missing, in gate n; at step 0 only");
  ASSERT_EQ(found[0].also.size(), 1u);
  EXPECT_EQ(found[0].also[0][0].detail, "missing, in gates r, n; at step 0 only");
}

TEST(VerifyDiagnosis, ThreeAreFoundWhereTwoDontExplainIt) {
  Random random(15);
  const std::vector<Layer> layers{random_layer(random, Kind::kGru, 3, 4)};
  std::vector<Layer> other = layers;
  other[0].cell.reset_after = false;
  other[0].cell.gate = {Function::kHardSigmoid, 0.2, 0.5};
  other[0].directions[0].bias_h.clear();
  Recording recording = record(other, random.numbers(6 * 3), 6, 1);
  for (auto& gate : recording.layers[0][0].gates) gate.clear();
  const std::vector<Diagnosis> found = diagnosed(layers, recording);
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].changes.size(), 3u);
  EXPECT_EQ(found[0].changes[0].name, "reset_before");
  EXPECT_EQ(found[0].changes[1].name, "one_bias");
  EXPECT_EQ(found[0].changes[2].name, "gate_activation");
}

// One number is too little information: many sets of two or three changes would explain it.
TEST(VerifyDiagnosis, OneNumberIsNotExplainedByTwoOrThree) {
  Random random(16);
  const std::vector<Layer> layers{random_layer(random, Kind::kGru, 1, 1)};
  for (int sample = 0; sample < 20; ++sample) {
    Recording recording = record(layers, random.numbers(1), 1, 1);
    recording.precision = Precision::of(DType::kF32);
    for (auto& gate : recording.layers[0][0].gates) gate.clear();
    recording.layers[0][0].hn.clear();
    recording.layers[0][0].h[0] = 0.5 * random.number();
    for (const Diagnosis& found : diagnosed(layers, recording)) EXPECT_LT(found.changes.size(), 2u);
  }
}

TEST(VerifyDiagnosis, APairIsFoundWhereNoSingleChangeDoes) {
  Random random(8);
  const std::vector<Layer> layers{random_layer(random, Kind::kGru, 2, 3)};
  std::vector<Layer> other = layers;
  other[0].cell.reset_after = false;
  other[0].cell.gate = {Function::kHardSigmoid, 0.2, 0.5};
  const std::vector<Diagnosis> found = diagnosed(layers, record(other, random.numbers(4 * 2), 4, 1));
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].changes.size(), 2u);
  EXPECT_EQ(found[0].changes[0].name, "reset_before");
  EXPECT_EQ(found[0].changes[1].name, "gate_activation");
  EXPECT_EQ(found[0].changes[1].detail, "hard_sigmoid(0.2, 0.5)");
}

TEST(VerifyDiagnosis, OneDirectionIsSearchedByItself) {
  Random random(9);
  const std::vector<Layer> layers{random_layer(random, Kind::kLstm, 2, 3, 2)};
  std::vector<Layer> other = layers;
  other[0].directions[1].bias_h.clear();
  const std::vector<Diagnosis> found = diagnosed(layers, record(other, random.numbers(4 * 2), 4, 1));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].scope.direction, 1);
  ASSERT_EQ(found[0].changes.size(), 1u);
  EXPECT_EQ(found[0].changes[0].name, "one_bias");
}

TEST(VerifyDiagnosis, NothingIsMadeUp) {
  Random random(10);
  const std::vector<Layer> layers{random_layer(random, Kind::kGru, 2, 3)};
  std::vector<Layer> other = layers;
  other[0].directions[0].weight_h.values.edit()[5] += 0.1;
  const std::vector<Diagnosis> found = diagnosed(layers, record(other, random.numbers(4 * 2), 4, 1));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].changes.empty());
}

double work_of_search(const std::vector<Layer>& layers, const Recording& recording, int most) {
  double budget = 1e3;
  diagnose(layers, recording, budget, most);
  return 1e3 - budget;
}

// A set that explains nothing is ruled out by a few units of one step, so that a search of many units does little more
// work than one of few: 16 times as many units have 256 times as many weights.
TEST(VerifyDiagnosis, TheWorkOfARecordedLayerGrowsNoFasterThanItsUnits) {
  std::vector<double> work;
  for (const int64_t hidden : {8, 128}) {
    Random random(20);
    const std::vector<Layer> layers{random_layer(random, Kind::kGru, hidden, hidden)};
    const Recording other =
        record({random_layer(random, Kind::kGru, hidden, hidden)}, random.numbers(8 * 2 * hidden), 8, 2);
    work.push_back(work_of_search(layers, other, 1));
  }
  EXPECT_LT(work[1], 16 * work[0]);
}

// Of a stack of which the last layer is recorded the layers below a change are computed once.
TEST(VerifyDiagnosis, LayersBelowAChangeAreComputedOnce) {
  Random random(21);
  std::vector<Layer> layers, other;
  for (int index = 0; index < 3; ++index) {
    layers.push_back(random_layer(random, Kind::kRnn, 6, 6));
    other.push_back(random_layer(random, Kind::kRnn, 6, 6));
  }
  Recording recording = record(other, random.numbers(8 * 6), 8, 1);
  recording.inputs.clear();
  for (int index = 0; index < 2; ++index) recording.layers[index] = {{}};
  const Problem problem{layers, recording};
  LayerCache below(layers);
  ProductCache cache;
  const Haste haste{.cache = &cache, .below = &below};
  const double all = compare(layers, recording, Bounds::kNone, haste).largest;
  const double first = std::exchange(cache.work, 0);
  std::vector<Layer> changed = layers;
  changed[2].cell.activation = {Function::kSigmoid};
  const double largest = compare(changed, recording, Bounds::kNone, haste).largest;
  EXPECT_LT(cache.work, first / 2);
  EXPECT_EQ(largest, compare(changed, recording, Bounds::kWorstCase).largest);
  EXPECT_EQ(all, compare(layers, recording, Bounds::kWorstCase).largest);
  changed = layers;
  changed[0].cell.activation = {Function::kSigmoid};
  EXPECT_EQ(compare(changed, recording, Bounds::kNone, haste).largest, compare(changed, recording).largest);
}

TEST(VerifyDiagnosis, WhatABudgetLeavesOutIsNamed) {
  Random random(22);
  const std::vector<Layer> layers{random_layer(random, Kind::kGru, 4, 5)};
  const Recording recording = record({random_layer(random, Kind::kGru, 4, 5)}, random.numbers(6 * 4), 6, 1);
  const double whole = work_of_search(layers, recording, 3);
  double budget = whole / 10;
  const std::vector<Diagnosis> found = diagnose(layers, recording, budget);
  EXPECT_LT(std::abs(budget), whole / 20);
  ASSERT_EQ(found.size(), 1u);
  ASSERT_FALSE(found[0].untried.empty());
  for (const Untried& each : found[0].untried) {
    EXPECT_GT(each.left, 0);
    EXPECT_LE(each.left, each.all);
    EXPECT_FALSE(each.names.empty());
  }
  double enough = 2 * whole;
  for (const Diagnosis& each : diagnose(layers, recording, enough)) EXPECT_TRUE(each.untried.empty());
}

// A few units of a step are computed as all of them are.
TEST_P(VerifyKinds, AFewUnitsAgreeExactlyWhereAllDo) {
  Random random(23);
  const std::vector<Layer> layers{random_layer(random, GetParam(), 3, 6, 2)};
  Recording recording = record(layers, random.numbers(5 * 2 * 3), 5, 2);
  const Sequence input{3, exact(recording.x)};
  for (const size_t direction : {0, 1}) {
    const Sample sample{{1, 4}, 1};
    EXPECT_FALSE(differs_in(sample, layers[0], 0, direction, recording, input, nullptr));
    Recorded& recorded = recording.layers[0][direction];
    recorded.gates = {};
    recorded.hn.clear();
    for (const int64_t unit : {2, 4}) {
      double& number = recorded.h[(3 * 2 + 1) * 6 + unit];  // step 3, row 1
      number += 1e-3;
      EXPECT_EQ(differs_in({{1, unit}, 1}, layers[0], 0, direction, recording, input, nullptr), true);
      EXPECT_EQ(differs_in({{1, unit}, 0}, layers[0], 0, direction, recording, input, nullptr), false);
      number -= 1e-3;
    }
  }
}

TEST_P(VerifyKinds, NumbersWithoutBoundsAreTheSame) {
  Random random(24);
  Layer layer = random_layer(random, GetParam(), 3, 6, 2);
  layer.cell.clip = 0.6;
  layer.cell.zoneout = {0.25, GetParam() == Kind::kLstm ? 0.125 : 0};
  layer.cell.faults[0].recurrent = 0;
  layer.cell.faults[0].input_bias = 3;
  if (GetParam() == Kind::kLstm) layer.directions[1].peepholes = random.numbers(18);
  for (const bool normalises : {false, true}) {
    if (normalises) layer.cell.norm_eps = 1e-5;
    for (const Merge merge : {Merge::kConcat, Merge::kMul}) {
      layer.merge = merge;
      Layer second = random_layer(random, GetParam(), merge == Merge::kConcat ? 12 : 6, 6, 2);
      const std::vector<Layer> layers{layer, second};
      Recording recording = record(layers, random.numbers(5 * 2 * 3), 5, 2);
      recording.inputs.clear();
      recording.layers[0] = {{}, {}};
      recording.layers[1][0].h[17] += 0.3;
      const Comparison bounded = compare(layers, recording, Bounds::kWorstCase);
      EXPECT_NEAR(compare(layers, recording, Bounds::kNone).largest, bounded.largest, 1e-12);
      EXPECT_GT(bounded.largest, 0.29);
    }
  }
}

// A rearrangement gives the same matrix element by element, as it is read, and when all elements are moved at once.
TEST(VerifyLayer, MovesAreTheSameByRowsAndAtOnce) {
  Random random(25);
  Matrix matrix = random.matrix(12, 5);
  const std::vector<Move> moves{{Move::Kind::kBlocks, 3, {2, 0, 1}},
                                {Move::Kind::kReadByColumns, 1},
                                {Move::Kind::kWrittenByColumns, 3},
                                {Move::Kind::kBlocks, 4, {3, 1, 0, 2}}};
  for (const Move& move : moves) {
    matrix.moves.push_back(move);
    const Matrix settled = matrix.settled();
    EXPECT_TRUE(settled.moves.empty());
    EXPECT_EQ(matrix.selected({7, 0, 11}).values, settled.selected({7, 0, 11}).values);
  }
  // A buffer that is written by columns and read by rows: element (row, column) of the result stood at column * rows +
  // row.
  Matrix two{2, 3, std::vector<double>{1, 2, 3, 4, 5, 6}, {{Move::Kind::kReadByColumns, 1}}};
  EXPECT_EQ(*two.settled().values, (std::vector<double>{1, 3, 5, 2, 4, 6}));
  two.moves[0].kind = Move::Kind::kWrittenByColumns;
  EXPECT_EQ(*two.settled().values, (std::vector<double>{1, 4, 2, 5, 3, 6}));
}

TEST(VerifyDiagnosis, PollEndsIt) {
  Random random(11);
  const std::vector<Layer> layers{random_layer(random, Kind::kGru, 2, 3)};
  const Recording recording = record({random_layer(random, Kind::kGru, 2, 3)}, random.numbers(8), 4, 1);
  double budget = 10;
  EXPECT_THROW(diagnose(layers, recording, budget, 1, [] { throw Error("enough"); }), Error);
}

TEST(VerifyLayer, MisfitsAreNamed) {
  Random random(12);
  std::vector<Layer> layers{random_layer(random, Kind::kGru, 2, 3), random_layer(random, Kind::kGru, 4, 3)};
  const auto message = [&] {
    try {
      check(layers);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(), "layer 1: takes 4 inputs, but the layer before it gives 3");
  layers.pop_back();
  layers[0].directions[0].bias_x.pop_back();
  EXPECT_EQ(message(), "layer 0: bias_x should have 9 elements, got 8");
  EXPECT_THROW(check({}), Error);
}

}  // namespace
}  // namespace weft::verify
