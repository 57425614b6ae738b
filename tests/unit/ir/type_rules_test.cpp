// Type rules: the type of each op's result, and the message when operands don't fit.

#include "ir/text/parser.h"
#include "ir/verifier.h"
#include "programs.h"

namespace weft::type_rules_test {
namespace {

using testing::error_of;

/// `inputs` as `%a: f32[T]`; `op` as `neg %a : f32[T]`.
std::string program_of(const std::string& inputs, const std::string& op) {
  return "program @p(" + inputs + ", %t: f32[T,B]) { %r = " + op + " return %r }";
}

/// The type of the op's result, or the message without its position.
std::string result_of(const std::string& inputs, const std::string& op) {
  std::string type;
  std::string error = error_of([&] {
    ir::Program program = ir::parse(program_of(inputs, op));
    type = to_string(program.type(program.body.results[0]));
  });
  if (error == "no error") return type;
  return error.substr(error.find(": ") + 2);
}

struct Case {
  const char* inputs;
  const char* op;
  const char* result;
};

class TypeRule : public ::testing::TestWithParam<Case> {};

TEST_P(TypeRule, GivesTheTypeOrSaysWhyNot) {
  EXPECT_EQ(result_of(GetParam().inputs, GetParam().op), GetParam().result);
}

const Case kCases[] = {
    {"%a: i32[2]", "constant {value = 3} : i8[T,2]", "i8[T,2]"},
    {"%a: i32[2]", "constant {value = 128} : i8[]", "constant: 128 is no value of i8"},
    {"%a: i32[2]", "constant {value = 0.5} : i64[]", "constant: 0.5 is no value of i64"},
    {"%a: i32[2]", "constant {value = -1} : u8[]", "constant: -1 is no value of u8"},
    {"%a: i32[2]", "constant {value = nan} : i64[]", "constant: nan is no value of i64"},
    {"%a: i32[2]", "constant {value = 2} : bool[]", "constant: 2 is no value of bool"},
    {"%a: i32[2]", "constant {value = true} : bool[]", "bool[]"},
    {"%a: i32[2]", "constant {value = \"1\"} : f32[]", "constant: the attribute 'value' must be a number"},
    {"%a: i32[2]", "constant : f32[]", "constant: needs the attribute 'value', a number"},
    {"%a: i32[2]", "iota {dim = 1} : i64[T]", "iota: dim 1 is outside i64[T]"},
    {"%a: i32[2]", "iota {dim = 0} : bool[T]", "iota: takes numbers, not bool[T]"},
    {"%a: i32[2]", "neg %a", "i32[2]"},
    {"%a: bool[2]", "neg %a", "neg: takes numbers, not bool[2]"},
    {"%a: bool[2]", "copy %a", "bool[2]"},
    {"%a: i32[2]", "tanh %a", "tanh: takes f16, bf16, f32 or f64, not i32[2]"},
    {"%a: i32[2]", "size {of = dim(2*T)} : i64[]", "i64[]"},
    {"%a: i32[2]", "size {of = dim(T)} : i64[2]", "size: is one number, not i64[2]"},
    {"%a: i32[2]", "size {of = 3} : i64[]", "size: the attribute 'of' must be a dim"},
    {"%a: i32[2]", "not %a", "i32[2]"},
    {"%a: f32[2]", "not %a", "not: takes bool or integers, not f32[2]"},
    {"%a: i32[2]", "round %a", "round: takes f16, bf16, f32 or f64, not i32[2]"},
    {"%a: i32[2]", "rem %a, %a", "i32[2]"},
    {"%a: bool[2]", "rem %a, %a", "rem: takes numbers, not bool[2]"},
    {"%a: bool[T,2], %i: i32[B], %u: bool[B,2]", "scatter %a, %i, %u", "bool[T,2]"},
    {"%a: f32[T,2], %i: i32[B], %u: f32[B]", "scatter %a, %i, %u",
     "scatter: index i32[B] into f32[T,2] needs updates of f32[B,2], not f32[B]"},
    {"%a: f32[T,2], %i: f32[B], %u: f32[B,2]", "scatter %a, %i, %u",
     "scatter: its index must be an integer type, not f32[B]"},
    {"%a: f32[2], %b: f32[3]", "add %a, %b", "add: its operands' types differ, f32[2] and f32[3]"},
    {"%a: f32[2], %b: f64[2]", "add %a, %b", "add: its operands' types differ, f32[2] and f64[2]"},
    {"%a: f32[T]", "lt %a, %a", "bool[T]"},
    {"%a: f32[2]", "cast %a : bf16[2]", "bf16[2]"},
    {"%a: f32[2]", "cast %a : bf16[3]", "cast: changes the dtype only, but f32[2] would become bf16[3]"},
    {"%a: f32[2], %c: bool[2]", "select %c, %a, %a", "f32[2]"},
    {"%a: f32[2], %c: bool[3]", "select %c, %a, %a", "select: its condition is bool[3] but its values are f32[2]"},
    {"%a: f32[2]", "select %a, %a, %a", "select: its condition must be bool, not f32[2]"},
    {"%a: f32[2]", "cast %a {excess_precision = true} : bf16[2]", "bf16[2]"},
    {"%a: f32[2]", "cast %a {excess_precision = 1} : bf16[2]",
     "cast: the attribute 'excess_precision' must be true or false"},
    {"%a: f32[T,2]", "broadcast %a {dims = [0, 2]} : f32[T,B,2]", "f32[T,B,2]"},
    {"%a: f32[T,2]", "broadcast %a {dims = [1, 2]} : f32[T,B,2]",
     "broadcast: dim 0 of f32[T,2] would become dim 1 of f32[T,B,2], but the sizes differ"},
    {"%a: f32[1]", "broadcast %a {dims = [0]} : f32[T]",
     "broadcast: dim 0 of f32[1] would become dim 0 of f32[T], but the sizes differ"},
    {"%a: f32[T,T]", "broadcast %a {dims = [1, 0]} : f32[T,T]", "broadcast: dims must increase, but 0 follows 1"},
    {"%a: f32[T,T]", "broadcast %a {dims = [0]} : f32[T,T]",
     "broadcast: dims lists 1 dims, but the operand is f32[T,T]"},
    {"%a: f32[T]", "broadcast %a {dims = 0} : f32[T]", "broadcast: the attribute 'dims' must be a list of integers"},
    {"%a: f32[2*T,3]", "reshape %a : f32[6,T]", "f32[6,T]"},
    {"%a: f32[2*T,3]", "reshape %a : f32[5,T]", "reshape: f32[2*T,3] has 6*T elements but f32[5,T] has 5*T"},
    {"%a: f32[0,T]", "reshape %a : f32[B,0,3]", "f32[B,0,3]"},
    {"%a: f32[4611686018427387904,4]", "reshape %a : f32[1]", "a size overflows 64 bits: 4611686018427387904 times 4"},
    {"%a: f32[T,2,B]", "transpose %a {perm = [2, 0, 1]}", "f32[B,T,2]"},
    {"%a: f32[T,2]", "transpose %a {perm = [0, 0]}", "transpose: perm names dim 0 twice"},
    {"%a: f32[T,2]", "transpose %a {perm = [0, 2]}", "transpose: dim 2 is outside f32[T,2]"},
    {"%a: f32[T,8]", "slice %a {dim = 1, limit = 5, start = 2}", "f32[T,3]"},
    {"%a: f32[T,8]", "slice %a {dim = 1, limit = 8, start = 8}", "f32[T,0]"},
    {"%a: f32[T,8]", "slice %a {dim = 1, limit = 9, start = 2}", "slice: 2..9 is outside dim 1 of f32[T,8]"},
    {"%a: f32[T,8]", "slice %a {dim = 1, limit = 1, start = 2}", "slice: 2..1 is outside dim 1 of f32[T,8]"},
    {"%a: f32[T,8]", "slice %a {dim = 0, limit = 1, start = 0}", "f32[1,8]"},
    {"%a: f32[T,8]", "slice %a {dim = 0, limit = dim(T-1), start = 1}", "f32[T-2,8]"},
    {"%a: f32[T,8]", "slice %a {dim = 0, limit = dim(T+1), start = 0}", "slice: 0..T+1 is outside dim 0 of f32[T,8]"},
    {"%a: f32[T,8]", "pad %a {dim = 1, high = 0, low = dim(T)}", "f32[T,T+8]"},
    {"%a: f32[T,8]", "pad %a {dim = 1, high = 0.5, low = 0}", "pad: the attribute 'high' must be an integer or a dim"},
    {"%a: f32[T,8]", "slice %a {dim = -1, limit = 1, start = 0}", "slice: dim -1 is outside f32[T,8]"},
    {"%a: f32[T,8]", "pad %a {dim = 1, low = 1, high = 2}", "f32[T,11]"},
    {"%a: f32[T,8]", "pad %a {dim = 1, low = -1, high = 2}",
     "pad: low and high must not be negative, but are -1 and 2"},
    {"%a: f32[T,8]", "pad %a {dim = 1, low = 9223372036854775807, high = 2}",
     "pad: 9223372036854775807 + 8 + 2 is too large"},
    {"%a: f32[T,8], %b: f32[T,1]", "concat %a, %b, %a {dim = 1}", "f32[T,17]"},
    {"%a: f32[T,8], %b: f32[B,1]", "concat %a, %b {dim = 1}",
     "concat: f32[T,8] and f32[B,1] differ in more than dim 1"},
    {"%a: f32[T,8], %b: f32[1]", "concat %a, %b {dim = 1}", "concat: ranks differ in f32[T,8] and f32[1]"},
    {"%a: f32[T,8]", "concat %a, %a {dim = 0}", "f32[2*T,8]"},
    {"%a: f32[T,8]", "concat %a {dim = 0}", "f32[T,8]"},
    {"%a: f32[T,8]", "concat {dim = 0}", "concat: needs at least one operand"},
    {"%a: f32[T,8]", "reverse %a {dim = 0}", "f32[T,8]"},
    {"%a: f32[9,8,2], %i: i64[T,B]", "gather %a, %i", "f32[T,B,8,2]"},
    {"%a: f32[9,8], %i: bool[T]", "gather %a, %i", "gather: its index must be an integer type, not bool[T]"},
    {"%a: f32[], %i: i64[T]", "gather %a, %i", "gather: needs at least 1 dims, but an operand is f32[]"},
    {"%u: f32[T,8], %i: i64[T]", "scatter_add %i, %u : f32[9,8]", "f32[9,8]"},
    {"%u: f32[T,8], %i: i64[B]", "scatter_add %i, %u : f32[9,8]",
     "scatter_add: index i64[B] into f32[9,8] needs updates of [B,8], not f32[T,8]"},
    {"%a: f32[T,8], %s: i64[]", "dynamic_slice %a, %s {dim = 1, size = 3}", "f32[T,3]"},
    {"%a: bf16[T,8], %s: i64[]", "dynamic_slice %a, %s {dim = 0, size = dim(T-1)}", "bf16[T-1,8]"},
    {"%a: f32[T,8], %s: i64[]", "dynamic_slice %a, %s {dim = 1, size = 9}",
     "dynamic_slice: dim 1 of f32[T,8] has no 9 rows"},
    {"%a: f32[T,8], %s: i64[]", "dynamic_slice %a, %s {dim = 0, size = dim(T+1)}",
     "dynamic_slice: dim 0 of f32[T,8] has no T+1 rows"},
    {"%a: f32[T,8], %s: i64[]", "dynamic_slice %a, %s {dim = 0, size = -1}",
     "dynamic_slice: dim 0 of f32[T,8] has no -1 rows"},
    {"%a: f32[T,8], %s: i64[1]", "dynamic_slice %a, %s {dim = 1, size = 3}",
     "dynamic_slice: its start must be i64[], not i64[1]"},
    {"%a: f32[T,8], %s: i64[]", "dynamic_slice %a, %s {dim = 2, size = 3}", "dynamic_slice: dim 2 is outside f32[T,8]"},
    {"%a: f32[T,8], %s: i64[]", "dynamic_slice %a, %s {dim = 1}",
     "dynamic_slice: needs the attribute 'size', an integer or a dim"},
    {"%a: f32[T,8], %u: f32[T,1], %s: i64[]", "dynamic_update %a, %u, %s {dim = 1}", "f32[T,8]"},
    {"%a: f32[T,8], %u: f32[B,8], %s: i64[]", "dynamic_update %a, %u, %s {dim = 0}", "f32[T,8]"},
    {"%a: f32[T,8], %u: f32[B,8], %s: i64[]", "dynamic_update %a, %u, %s {dim = 1}",
     "dynamic_update: f32[T,8] and its update f32[B,8] differ in more than dim 1"},
    {"%a: f32[T,8], %u: f32[T], %s: i64[]", "dynamic_update %a, %u, %s {dim = 1}",
     "dynamic_update: f32[T,8] and its update f32[T] differ in more than dim 1"},
    {"%a: f32[T,8], %u: f32[T,9], %s: i64[]", "dynamic_update %a, %u, %s {dim = 1}",
     "dynamic_update: dim 1 of f32[T,8] has no 9 rows"},
    {"%a: f32[T,8], %u: f32[T,1], %s: i32[]", "dynamic_update %a, %u, %s {dim = 1}",
     "dynamic_update: its start must be i64[], not i32[]"},
    {"%a: f32[T,8,2]", "reduce_sum %a {dims = [0, 2]}", "f32[8]"},
    {"%a: f32[T,8,2]", "reduce_max %a {dims = []}", "f32[T,8,2]"},
    {"%a: f32[T,8]", "reduce_sum %a {dims = [1, 1]}", "reduce_sum: dims must increase, but 1 follows 1"},
    {"%a: bool[T,8]", "reduce_sum %a {dims = [1]}", "reduce_sum: takes numbers, not bool[T,8]"},
    {"%a: f32[T,B,5], %b: f32[5,6]", "matmul %a, %b", "f32[T,B,6]"},
    {"%a: f32[5], %b: f32[6,5]", "matmul %a, %b {transpose_b = true}", "f32[6]"},
    {"%a: f32[B,5], %b: f32[6,8]", "matmul %a, %b",
     "matmul: the operands' inner sizes differ, 5 in f32[B,5] and 6 in f32[6,8]"},
    {"%a: f32[B,5], %b: f64[5,8]", "matmul %a, %b", "matmul: its operands' dtypes differ, f32[B,5] and f64[5,8]"},
    {"%a: f32[B,5], %b: f32[5]", "matmul %a, %b", "matmul: its second operand must have 2 dims, but is f32[5]"},
    {"%a: f32[B,5], %b: f32[5,6]", "matmul %a, %b {transpose_b = 1}",
     "matmul: the attribute 'transpose_b' must be true or false"},
    {"%a: f32[B,5], %b: f32[5,6]", "matmul %a, %b {transposed = true}",
     "matmul: unknown attribute 'transposed'; it knows transpose_b"},
    {"%a: f32[T,B,5], %b: f32[T,B,6]", "outer %a, %b", "f32[5,6]"},
    {"%a: f32[T,B,5], %b: f32[T,B,6]", "outer %a, %b {round_to_f16 = true}", "f16[5,6]"},
    {"%a: f64[T,5], %b: f64[T,6]", "outer %a, %b {round_to_f16 = true}",
     "outer: round_to_f16 is for f32, not f64[T,5]"},
    {"%a: f32[T,5], %b: f32[B,6]", "outer %a, %b", "outer: the operands' leading dims differ in f32[T,5] and f32[B,6]"},
    {"%a: f32[T,B,5], %b: f32[T,5,6]", "batch_matmul %a, %b", "f32[T,B,6]"},
    {"%a: f32[T,5,B], %b: f32[T,6,5]", "batch_matmul %a, %b {transpose_a = true, transpose_b = true}", "f32[T,B,6]"},
    {"%a: f32[T,B,5], %b: f32[T,6,5]", "batch_matmul %a, %b",
     "batch_matmul: the operands' inner sizes differ, 5 in f32[T,B,5] and 6 in f32[T,6,5]"},
    {"%b: f32[48,7]", "pack %b {groups = 3, width = 16, transpose_b = true}", "f32[1,7,48]"},
    {"%b: f32[7,51]", "pack %b {groups = 3, width = 16}", "f32[2,7,48]"},
    {"%b: f32[7,50]", "pack %b {groups = 3, width = 16}", "pack: 50 columns don't split into 3 groups"},
    {"%b: f32[7,48]", "pack %b {groups = 0, width = 16}", "pack: groups must be from 1 to 65536, not 0"},
    {"%b: f32[7,48]", "pack %b {groups = 3, width = 0}", "pack: width must be from 1 to 65536, not 0"},
    {"%b: bf16[7,48]", "pack %b {groups = 3, width = 16, interleave = 2}", "bf16[1,4,96]"},
    {"%b: f16[7,48]", "pack %b {groups = 3, width = 16, widen = true}", "f32[1,7,48]"},
    {"%b: f32[7,48]", "pack %b {groups = 3, width = 16, widen = true}", "pack: widen is for f16 and i8, not f32[7,48]"},
    {"%b: f32[K,48]", "pack %b {groups = 3, width = 16, interleave = 2}",
     "pack: with interleave its inner size must be a number"},
    {"%a: f32[B,7], %p: f32[2,7,48]", "matmul_packed %a, %p {groups = 3, n = 51}", "f32[B,51]"},
    {"%a: i32[B,7], %w: i8[48,7]", "matmul_rows %a, %w {groups = 3, width = 16}", "i32[B,48]"},
    {"%a: f64[B,7], %w: i8[48,7]", "matmul_rows %a, %w {groups = 3, width = 16}",
     "matmul_rows: its first operand must be f32 or i32, but is f64[B,7]"},
    {"%a: f32[B,7], %w: f32[48,7]", "matmul_rows %a, %w {groups = 3, width = 16}",
     "matmul_rows: its weights must be i8 of 2 dims, but are f32[48,7]"},
    {"%a: f32[B,7], %w: i8[48,7]", "matmul_rows %a, %w {groups = 5, width = 16}",
     "matmul_rows: 48 columns don't split into 5 groups"},
    {"%a: f32[B,7], %p: f32[2,7,48]", "matmul_packed %a, %p {groups = 3, n = 48}",
     "matmul_packed: f32[B,7] with n = 48 needs panels of [1,7,48], not f32[2,7,48]"},
    {"%a: f32[B,7], %p: bf16[1,4,96]", "matmul_packed %a, %p {groups = 3, n = 48, interleave = 2}", "f32[B,48]"},
    {"%a: bf16[B,7], %p: bf16[1,7,48]", "matmul_packed %a, %p {groups = 3, n = 48}", "f32[B,48]"},
    {"%a: f64[B,7], %p: bf16[1,7,48]", "matmul_packed %a, %p {groups = 3, n = 48}",
     "matmul_packed: panels of bf16 take operands of that type or f32, not f64[B,7]"},
    {"%a: f32[B,7], %p: f32[1,7,50]", "matmul_packed %a, %p {groups = 3, n = 48}",
     "matmul_packed: panels of 50 columns don't hold 3 groups"},
};

INSTANTIATE_TEST_SUITE_P(All, TypeRule, ::testing::ValuesIn(kCases));

}  // namespace
}  // namespace weft::type_rules_test
