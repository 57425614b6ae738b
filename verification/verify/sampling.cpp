#include "verify/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "verify/recording.h"
#include "verify/step.h"

namespace weft::verify {
namespace {

constexpr int kSamples = 6;
constexpr double kMargin = 4;

class Sampler {
 public:
  Sampler(const Layer& layer, size_t direction, const Precision& precision, const Sequence& input, int64_t steps,
          int64_t batch)
      : layer_(layer), direction_(direction), precision_(precision), input_(input), steps_(steps), batch_(batch) {}

  /// Raises `spread` [T, B, P] to the distance of one more run from `results`, and `local` to one step's own error.
  void sample(const Sequence& results, int64_t row, std::vector<double>& spread, std::vector<double>& local) {
    const bool has_cell = layer_.cell.kind == Kind::kLstm;
    const Direction& first = layer_.directions[direction_];
    Values h = exact(initial(first.h0, row, layer_.outputs()));
    Values c = has_cell ? exact(initial(first.c0, row, layer_.hidden())) : Values();
    for (int64_t turn = 0; turn < steps_; ++turn) {
      const int64_t index = (first.reverse ? steps_ - 1 - turn : turn) * batch_ + row;
      Values x = input_.row(index);
      move(x);
      const Layer& now = layer_.at(turn, steps_);
      StepResult next = step(now.cell, now.directions[direction_], precision_, {x, h, h, c});
      h = std::move(next.h);
      c = std::move(next.c);
      for (int64_t unit = 0; unit < h.size(); ++unit) raise(local[index * h.size() + unit], h.error[unit]);
      move(h);
      move(c);
      for (int64_t unit = 0; unit < h.size(); ++unit) {
        const int64_t at = index * h.size() + unit;
        raise(spread[at], std::abs(h.value[unit] - results.numbers.value[at]));
      }
    }
  }

 private:
  static void raise(double& largest, double value) {
    if (!(value <= largest)) largest = std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
  }
  void move(Values& values) {
    for (int64_t index = 0; index < values.size(); ++index) {
      values.value[index] += (random_() & 1) != 0 ? values.error[index] : -values.error[index];
      values.error[index] = 0;
    }
  }

  const Layer& layer_;
  const size_t direction_;
  const Precision& precision_;
  const Sequence& input_;
  const int64_t steps_, batch_;
  std::minstd_rand random_{1};
};

}  // namespace

void tighten(const Layer& layer, size_t direction, const Precision& precision, const Sequence& input, int64_t steps,
             int64_t batch, Sequence& results) {
  std::vector<double> spread(results.numbers.size()), local(results.numbers.size());
  Sampler sampler(layer, direction, precision, input, steps, batch);
  for (int64_t row = 0; row < batch; ++row)
    for (int sample = 0; sample < kSamples; ++sample) sampler.sample(results, row, spread, local);
  for (int64_t index = 0; index < results.numbers.size(); ++index) {
    double& error = results.numbers.error[index];
    error = std::min(error, kMargin * spread[index] + local[index]);
  }
}

}  // namespace weft::verify
