#include "large_programs.h"

#include "ir/builder.h"

namespace weft::large_programs {
namespace {

using ir::Builder;
using ir::Dim;
using ir::Program;
using ir::Shape;
using ir::Type;
using ir::ValueId;

Type f32(Shape shape) { return {DType::kF32, std::move(shape)}; }
Dim rows() { return Dim::symbol("B"); }

/// One parameter's step of Adam: 20 ops. `scalars`: beta1, 1 - beta1, beta2, 1 - beta2, epsilon, rate / (1 - beta1^t),
/// 1 / (1 - beta2^t).
void adam_step(Builder& builder, std::span<const ValueId> scalars, const Shape& shape, std::vector<ValueId>& results) {
  const ValueId weight = builder.input(f32(shape)), gradient = builder.input(f32(shape));
  const ValueId first = builder.input(f32(shape)), second = builder.input(f32(shape));
  auto spread = [&](size_t i) { return builder.broadcast(scalars[i], shape, {}); };
  const ValueId mean = builder.add(builder.mul(spread(0), first), builder.mul(spread(1), gradient));
  const ValueId squared = builder.mul(gradient, gradient);
  const ValueId variance = builder.add(builder.mul(spread(2), second), builder.mul(spread(3), squared));
  const ValueId root = builder.unary(ir::OpCode::kSqrt, builder.mul(variance, spread(6)));
  const ValueId change = builder.div(builder.mul(spread(5), mean), builder.add(root, spread(4)));
  results.insert(results.end(), {builder.sub(weight, change), mean, variance});
}

Program adam(int64_t ops, bool one_shape) {
  Program program;
  Builder builder(program, program.body);
  std::vector<ValueId> scalars, results;
  for (int i = 0; i < 7; ++i) scalars.push_back(builder.input(f32({})));
  for (int64_t i = 0; i < ops / 20; ++i)
    adam_step(builder, scalars, one_shape ? Shape{64, 64} : Shape{i + 2, 48}, results);
  builder.ret(std::move(results));
  return program;
}

Program adam_one_shape(int64_t ops) { return adam(ops, true); }
Program adam_many_shapes(int64_t ops) { return adam(ops, false); }

ValueId biased(Builder& builder, ValueId product, ValueId bias) {
  return builder.add(product, builder.broadcast_trailing(bias, builder.type(product).shape));
}

/// A plain recurrence, unrolled as a tracer sees a Python loop: 8 ops a step.
Program unrolled(int64_t ops) {
  constexpr int64_t kSize = 64;
  const int64_t steps = ops / 8;
  Program program;
  Builder builder(program, program.body);
  const ValueId x = builder.input(f32({steps, rows(), kSize})), w = builder.input(f32({kSize, kSize}));
  const ValueId u = builder.input(f32({kSize, kSize})), bias = builder.input(f32({kSize}));
  ValueId h = builder.input(f32({rows(), kSize}));
  for (int64_t t = 0; t < steps; ++t) {
    const ValueId step = builder.reshape(builder.slice(x, 0, t, t + 1), {rows(), kSize});
    const ValueId sum = builder.add(builder.matmul(step, w), builder.matmul(h, u));
    h = builder.tanh(biased(builder, sum, bias));
  }
  builder.ret({h});
  return program;
}

/// Layers with weights of their own: 12 ops each.
Program deep(int64_t ops) {
  constexpr int64_t kSize = 64;
  Program program;
  Builder builder(program, program.body);
  ValueId h = builder.input(f32({rows(), kSize}));
  for (int64_t i = 0; i < ops / 12; ++i) {
    const ValueId w = builder.input(f32({kSize, 2 * kSize})), bias = builder.input(f32({2 * kSize}));
    const ValueId v = builder.input(f32({kSize, kSize})), other = builder.input(f32({kSize}));
    const ValueId both = biased(builder, builder.matmul(h, w), bias);
    const ValueId gate = builder.sigmoid(builder.slice(both, 1, 0, kSize));
    const ValueId value = builder.mul(gate, builder.slice(both, 1, kSize, 2 * kSize));
    h = builder.add(h, biased(builder, builder.matmul(value, v), other));
  }
  builder.ret({h});
  return program;
}

/// One loop with a step of this many ops: 7 ops a layer of the step.
Program long_step(int64_t ops) {
  constexpr int64_t kSize = 32;
  Program program;
  Builder builder(program, program.body);
  const ValueId x = builder.input(f32({Dim::symbol("T"), rows(), kSize})), h0 = builder.input(f32({rows(), kSize}));
  std::vector<ValueId> weights, biases;
  for (int64_t i = 0; i < ops / 7; ++i) {
    weights.push_back(builder.input(f32({kSize, kSize})));
    biases.push_back(builder.input(f32({kSize})));
  }
  auto step = [&](Builder& body, std::span<const ValueId> carries, std::span<const ValueId> xs) {
    ValueId h = carries[0];
    for (size_t i = 0; i < weights.size(); ++i) {
      const ValueId product = biased(body, body.matmul(h, weights[i]), biases[i]);
      h = body.add(body.mul(body.sigmoid(product), xs[0]), h);
    }
    return Builder::StepResults{{h}, {h}};
  };
  builder.ret(builder.scan({h0}, {x}, Dim::symbol("T"), false, step));
  return program;
}

/// One loop whose many carries and stacks make up the ops: 5 ops each.
Program wide_step(int64_t ops) {
  constexpr int64_t kSize = 32;
  Program program;
  Builder builder(program, program.body);
  std::vector<ValueId> inits, stacks;
  for (int64_t i = 0; i < ops / 5; ++i) {
    inits.push_back(builder.input(f32({rows(), kSize})));
    stacks.push_back(builder.input(f32({Dim::symbol("T"), rows(), kSize})));
  }
  auto step = [&](Builder& body, std::span<const ValueId> carries, std::span<const ValueId> xs) {
    Builder::StepResults results;
    for (size_t i = 0; i < carries.size(); ++i) {
      const ValueId sum = body.add(carries[i], xs[i]);
      const ValueId other = body.mul(sum, carries[(i + 1) % carries.size()]);
      results.carries.push_back(body.add(body.tanh(other), body.sigmoid(sum)));
      results.ys.push_back(other);
    }
    return results;
  };
  builder.ret(builder.scan(inits, stacks, Dim::symbol("T"), false, step));
  return program;
}

/// Recurrent layers one after the other: 16 ops each, most of them in a step.
Program many_loops(int64_t ops) {
  constexpr int64_t kSize = 32;
  Program program;
  Builder builder(program, program.body);
  ValueId x = builder.input(f32({Dim::symbol("T"), rows(), kSize}));
  const ValueId h0 = builder.input(f32({rows(), kSize}));
  for (int64_t i = 0; i < ops / 16; ++i) {
    const ValueId w = builder.input(f32({kSize, 2 * kSize})), u = builder.input(f32({kSize, 2 * kSize}));
    const ValueId bias = builder.input(f32({2 * kSize}));
    auto step = [&](Builder& body, std::span<const ValueId> carries, std::span<const ValueId> xs) {
      const ValueId h = carries[0];
      const ValueId both = biased(body, body.add(body.matmul(xs[0], w), body.matmul(h, u)), bias);
      const ValueId gate = body.sigmoid(body.slice(both, 1, 0, kSize));
      const ValueId value = body.tanh(body.slice(both, 1, kSize, 2 * kSize));
      const ValueId next = body.add(h, body.mul(gate, body.sub(value, h)));
      return Builder::StepResults{{next}, {next}};
    };
    x = builder.scan({h0}, {x}, Dim::symbol("T"), false, step)[1];
  }
  builder.ret({x});
  return program;
}

constexpr Kind kKinds[] = {
    {"Adam, one shape", adam_one_shape, false},
    {"Adam, many shapes", adam_many_shapes, false},
    {"unrolled, forward", unrolled, false},
    {"unrolled, both ways", unrolled, true},
    {"deep, forward", deep, false},
    {"deep, both ways", deep, true},
    {"long step, forward", long_step, false},
    {"long step, both ways", long_step, true},
    {"wide step, forward", wide_step, false},
    {"wide step, both ways", wide_step, true},
    {"many loops, forward", many_loops, false},
    {"many loops, both ways", many_loops, true},
};

}  // namespace

std::span<const Kind> kinds() { return kKinds; }

int64_t count_ops(const ir::Block& block) {
  auto count = static_cast<int64_t>(block.ops.size());
  for (const ir::Op& op : block.ops)
    for (const ir::Block& region : op.regions) count += count_ops(region);
  return count;
}

}  // namespace weft::large_programs
