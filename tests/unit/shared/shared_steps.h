#pragma once

#include <string>
#include <vector>

namespace weft::testing {

/// Steps in which one of ColumnSharing's rules, and no other, asks for a barrier, if the passes that would take the
/// loop apart are left out.
inline const std::vector<std::string> kTakesLoopsApart = {"reassociate", "hoist", "push_slices", "sink",
                                                          "merge_stacks"};

/// Rule 3: the second stage reads the carry that the first replaces.
inline constexpr const char* kReadsAnOldCarry = R"(program @reads_an_old_carry(
    %x: f32[T,B,256], %h0: f32[B,256], %g0: f32[B,64], %w1: f32[256,64], %w2: f32[256,64]) {
  %half = constant {value = 0.5} : f32[]
  %small = constant {value = 0.06} : f32[]
  %hT, %gT, %ys = scan length T carry(%h = %h0, %g = %g0) xs(%xt = %x) {
    %c = broadcast %half {dims = []} : f32[B,256]
    %hc = mul %h, %c : f32[B,256]
    %a = add %hc, %xt : f32[B,256]
    %h1 = tanh %a : f32[B,256]
    %p = matmul %h1, %w1 : f32[B,64]
    %q = matmul %h, %w2 : f32[B,64]
    %pq = sub %p, %q : f32[B,64]
    %s = broadcast %small {dims = []} : f32[B,64]
    %spq = mul %pq, %s : f32[B,64]
    %gg = add %g, %spq : f32[B,64]
    %g1 = tanh %gg : f32[B,64]
    yield carry(%h1, %g1) ys(%g1)
  } : f32[B,256], f32[B,64], f32[T,B,64]
  return %hT, %gT, %ys
})";

/// Rule 4, when reversed and ragged: the first stage reads all columns of rows that have just entered.
inline constexpr const char* kReadsEnteredRows = R"(program @reads_entered_rows(%x: f32[N,256], %sizes: i64[T],
    %h0: f32[B,256], %g0: f32[B,64], %w: f32[256,256], %w1: f32[256,64]) {
  %small = constant {value = 0.06} : f32[]
  %hT, %gT, %ys = scan reverse length T ragged(%sizes, B, N) carry(%h = %h0, %g = %g0) xs(%xt = %x) {
    %p = matmul %h, %w : f32[B,256]
    %c = broadcast %small {dims = []} : f32[B,256]
    %pc = mul %p, %c : f32[B,256]
    %a = add %pc, %xt : f32[B,256]
    %h1 = tanh %a : f32[B,256]
    %q = matmul %h1, %w1 : f32[B,64]
    %s = broadcast %small {dims = []} : f32[B,64]
    %qs = mul %q, %s : f32[B,64]
    %gg = add %g, %qs : f32[B,64]
    %g1 = tanh %gg : f32[B,64]
    yield carry(%h1, %g1) ys(%g1)
  } : f32[B,256], f32[B,64], f32[N,64]
  return %hT, %gT, %ys
})";

}  // namespace weft::testing
