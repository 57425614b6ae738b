#include <gtest/gtest.h>

#include "base/error.h"
#include "base/settings.h"
#include "runtime/kernels/kernels.h"

namespace weft::runtime::isa_test {
namespace {

TEST(IsaTest, GenericIsAlwaysThere) { EXPECT_TRUE(supports(Isa::kGeneric)); }

TEST(IsaTest, SettingForcesTheIsa) {
  const std::string before = mutable_settings().isa;
  mutable_settings().isa = "generic";
  EXPECT_EQ(active_isa(), Isa::kGeneric);
  mutable_settings().isa = "mmx";
  try {
    active_isa();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "WEFT_ISA=mmx: unknown instruction set; known are amx, avx512, avx2, generic, amx_emulated");
  }
  mutable_settings().isa = "";
  EXPECT_TRUE(supports(active_isa()));
  mutable_settings().isa = before;
}

TEST(IsaTest, OtherTypesHaveNoKernels) { EXPECT_THROW(kernels(Isa::kGeneric, DType::kI32), InternalError); }

}  // namespace
}  // namespace weft::runtime::isa_test
