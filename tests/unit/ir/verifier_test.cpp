// verify() on programs that no text can hold, and bind().

#include "ir/verifier.h"

#include "ir/binder.h"
#include "ir/builder.h"
#include "ir/text/parser.h"
#include "programs.h"

namespace weft::verifier_test {
namespace {

using ir::Dim;
using ir::OpCode;
using testing::error_of;

/// x -> tanh(x), and a scan over x that doubles a carry.
ir::Program example() {
  ir::Program program;
  ir::Builder b(program, program.body);
  ir::Shape shape{Dim::symbol("T"), 3};
  ir::ValueId x = b.input({DType::kF32, shape}, "x");
  ir::ValueId h = b.input({DType::kF32, {3}}, "h");
  ir::ValueId y = b.tanh(x);
  auto step = [](ir::Builder& body, std::span<const ir::ValueId> carries, std::span<const ir::ValueId> xs) {
    ir::ValueId sum = body.add(carries[0], xs[0]);
    return ir::Builder::StepResults{{sum}, {sum}};
  };
  std::vector<ir::ValueId> results = b.scan({h}, {y}, Dim::symbol("T"), false, step);
  b.ret(results);
  return program;
}

TEST(Verifier, AcceptsWhatTheBuilderMakes) { EXPECT_NO_THROW(ir::verify(example())); }

TEST(Verifier, RefusesAValueDefinedTwice) {
  ir::Program program = example();
  program.body.ops.push_back(program.body.ops[0]);
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "value 2 is defined twice");
}

TEST(Verifier, RefusesUseBeforeDefinition) {
  ir::Program program = example();
  std::swap(program.body.ops[0], program.body.ops[1]);
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "scan: value 2 is used before it is defined");
}

TEST(Verifier, RefusesUseOutsideTheRegion) {
  ir::Program program = example();
  program.body.results.push_back(program.body.ops[1].regions[0].ops[0].results[0]);
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "return: value 5 is used outside its region");
}

TEST(Verifier, RefusesIdsThatDoNotExist) {
  ir::Program program = example();
  program.body.results[0] = 99;
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "return: value 99 of 8 does not exist");
  program = example();
  program.body.ops[0].operands[0] = ir::kNoValue;
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "tanh: value 4294967295 of 8 does not exist");
  program = example();
  program.body.ops[0].results[0] = 99;
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "tanh: value 99 of 8 does not exist");
}

TEST(Verifier, RefusesAWrongResultType) {
  ir::Program program = example();
  program.values[2].type.dtype = DType::kF64;
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "tanh: gives f32[T,3], but value 2 is f64[T,3]");
}

TEST(Verifier, RefusesCarriesThatChangeType) {
  ir::Program program = example();
  ir::Block& region = program.body.ops[1].regions[0];
  ir::Builder body(program, region);
  region.results[0] = body.cast(region.results[0], DType::kF64);
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "scan: carry 0 comes in as f32[3] but goes out as f64[3]");
}

TEST(Verifier, RefusesRegionsThatDoNotFit) {
  ir::Program program = example();
  program.body.ops[1].regions.clear();
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "scan: needs one region, but has 0");
  program = example();
  program.body.ops[1].attrs["carries"] = int64_t{3};
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "scan: 3 carries, but 2 operands");
  program = example();
  program.body.ops[1].attrs["length"] = Dim(7);
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "scan: its length is 7, but an xs operand is f32[T,3]");
  program = example();
  program.body.ops[0].regions.emplace_back();
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "tanh: has no region");
}

TEST(Verifier, RefusesAbsurdTypes) {
  ir::Program program;
  ir::Builder b(program, program.body);
  b.input({DType::kF32, ir::Shape(17, Dim(1))}, "x");
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "%x: has 17 dims; at most 16 are supported");
  program.values[0].type.shape = {Dim(-3)};
  EXPECT_EQ(error_of([&] { ir::verify(program); }), "the size -3 is outside 0..2^62");
}

TEST(Bind, FindsEverySymbol) {
  ir::Program program = ir::parse("program @p(%a: f32[2*T,B], %b: f32[B,T,4]) { return }");
  ir::Bindings expected{{"T", 5}, {"B", 0}};
  EXPECT_EQ(ir::bind(program, {{10, 0}, {0, 5, 4}}), expected);
}

TEST(Bind, SaysWhatDoesNotFit) {
  ir::Program program = ir::parse("program @p(%a: f32[T*B,B], %0: f32[B,T,4]) { return }");
  auto error = [&](const std::vector<std::vector<int64_t>>& sizes) {
    return error_of([&] { ir::bind(program, sizes); });
  };
  EXPECT_EQ(error({{6, 2}}), "program @p takes 2 inputs, but got 1");
  EXPECT_EQ(error({{6, 2, 1}, {2, 3, 4}}), "input 0 'a' of program @p must be f32[B*T,B], but got f32[6,2,1]");
  EXPECT_EQ(error({{6, 2}, {3, 2, 4}}),
            "input 1 of program @p must be f32[B,T,4] with B = 2 (dim 1 of input 0 'a'), but got f32[3,2,4]");
  EXPECT_EQ(error({{6, 2}, {2, 3, 5}}), "input 1 of program @p must be f32[B,T,4], but got f32[2,3,5]");
  EXPECT_EQ(error({{7, 2}, {2, 3, 4}}),
            "input 0 'a' of program @p must be f32[B*T,B] with B = 2 (dim 1 of input 0 'a') and T = 3 (dim 1 of input "
            "1), but got f32[7,2]");
  EXPECT_EQ(error({{6, -2}, {2, 3, 4}}), "input 0 'a' of program @p must be f32[B*T,B], but got f32[6,-2]");
}

TEST(Dims, MultiplyAndOverflow) {
  Dim t = Dim::symbol("T");
  EXPECT_EQ(to_string(Dim(3) * t * Dim::symbol("B") * Dim(2)), "6*B*T");
  EXPECT_EQ(Dim(0) * t, Dim(0));
  EXPECT_EQ(evaluate(Dim(2) * t * t, {{"T", 5}}), 50);
  EXPECT_EQ(error_of([&] { evaluate(t, {}); }), "the symbol T of the dim T has no value");
  EXPECT_EQ(error_of([&] { evaluate(t * t, {{"T", int64_t{1} << 32}}); }), "the size T*T overflows 64 bits");
  // 0 times anything is 0, in whatever order.
  EXPECT_EQ(evaluate(t * t * Dim::symbol("Z"), {{"T", int64_t{1} << 32}, {"Z", 0}}), 0);
  EXPECT_THROW(t.constant(), InternalError);
}

}  // namespace
}  // namespace weft::verifier_test
