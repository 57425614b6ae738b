// From which results a gradient gets to which inputs.
#include "passes/differentiation/gradient_paths.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ir/text/parser.h"

namespace weft::passes::gradient_paths_test {
namespace {

/// By result, the inputs that a gradient of that result alone gets to: "x y" for %x and %y.
std::vector<std::string> paths(const std::string& text) {
  const ir::Program program = ir::parse(text);
  const GradientPaths found(program);
  std::vector<std::string> all;
  for (size_t k = 0; k < program.body.results.size(); ++k) {
    std::vector<bool> results(program.body.results.size());
    results[k] = true;
    const std::vector<bool> reached = found.reached(results);
    std::string names;
    for (size_t i = 0; i < reached.size(); ++i)
      if (reached[i]) names += (names.empty() ? "" : " ") + program.values[program.body.args[i]].name;
    all.push_back(names);
  }
  return all;
}

using Names = std::vector<std::string>;

TEST(GradientPaths, GoThroughFloatingOperandsAndNoStop) {
  EXPECT_EQ(paths("program @p(%x: f32[B], %w: f32[B], %s: f32[B], %i: i64[B]) {"
                  " %u = stop_gradient %w : f32[B] %y = mul %x, %u : f32[B] %a = floor %s : f32[B]"
                  " %m = gt %s, %x : bool[B] %z = select %m, %y, %w : f32[B] %c = cast %i : f32[B]"
                  " return %y, %a, %m, %z, %c }"),
            (Names{"x", "s", "", "x w", ""}));
}

TEST(GradientPaths, OfAScanGoThroughItsCarries) {
  // %p reaches the second carry, and through it the first in later steps.
  const auto loop = [](const std::string& length) {
    return paths("program @p(%a: f32[B], %b: f32[B], %x: f32[" + length +
                 ",B], %p: f32[B], %q: f32[B]) {"
                 " %l, %m, %ys = scan length " +
                 length +
                 " carry(%c = %a, %d = %b) xs(%xt = %x) {"
                 " %n = add %c, %d : f32[B] %e = mul %p, %xt : f32[B] %qs = stop_gradient %q : f32[B]"
                 " %y = mul %qs, %xt : f32[B] yield carry(%n, %e) ys(%y) } : f32[B], f32[B], f32[" +
                 length +
                 ",B]"
                 " return %l, %m, %ys }");
  };
  EXPECT_EQ(loop("4"), (Names{"a b x p", "x p", "x"}));
  EXPECT_EQ(loop("T"), (Names{"a b x p", "b x p", "x"})) << "with no step the last carry is the first one";
}

TEST(GradientPaths, GoToWhatRegionsReadFromOutside) {
  EXPECT_EQ(paths("program @p(%x: f32[], %w: f32[], %v: f32[], %c: bool[]) {"
                  " %r = cond %c then { %a = mul %x, %w : f32[] yield %a } else { yield %x } : f32[]"
                  " return %r, %v }"),
            (Names{"x w", "v"}));
}

TEST(GradientPaths, GoFromEveryResultThroughOpsThatNobodyReads) {
  EXPECT_EQ(paths("program @p(%x: f32[], %w: f32[], %u: f32[]) { %a = neg %w : f32[] %s = stop_gradient %u : f32[]"
                  " %y = neg %s : f32[] return %y }"),
            (Names{"w"}));
  // Of several results one is enough.
  EXPECT_EQ(
      paths("program @p(%a: f32[B], %x: f32[4,B]) { %l, %ys = scan length 4 carry(%c = %a) xs(%xt = %x) {"
            " %y = neg %xt : f32[B] %n = neg %c : f32[B] yield carry(%n) ys(%y) } : f32[B], f32[4,B] return %ys }"),
      (Names{"x"}));
}

TEST(GradientPaths, TellManyInputsApart) {
  std::string args, ops, results;
  for (int i = 0; i < 130; ++i) {
    args += (i ? ", %x" : "%x") + std::to_string(i) + ": f32[]";
    ops += " %y" + std::to_string(i) + " = neg %x" + std::to_string(i) + " : f32[]";
    results += (i ? ", %y" : "%y") + std::to_string(i);
  }
  const Names found = paths("program @p(" + args + ") {" + ops + " return " + results + " }");
  for (int i = 0; i < 130; ++i) EXPECT_EQ(found[static_cast<size_t>(i)], "x" + std::to_string(i));
}

}  // namespace
}  // namespace weft::passes::gradient_paths_test
