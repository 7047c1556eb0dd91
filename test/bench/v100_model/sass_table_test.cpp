// SPDX-License-Identifier: Apache-2.0
#include "sass_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "own_kernels.hpp"

namespace qpn::bench::v100 {
namespace {

TEST(sass_table, holds_what_was_written) {
  sass_table const table = parse_sass_table(
      "# comment\ncompiler 1.2\nsource a.cu\nsources_sha256 ab\n\nkernel f<g<1>, 2>\n  alu 3\n"
      "  weights 0.5\nkernel h\n  alu 4\n");
  EXPECT_EQ(table.compiler, "1.2");
  EXPECT_EQ(table.sources_sha256, "ab");
  EXPECT_EQ(table.kernels.size(), 2u);
  EXPECT_EQ(table.kernel("f<g<1>, 2>")["alu"], 3);
  EXPECT_EQ(table.kernel("f<g<1>, 2>")["weights"], 0.5);
  EXPECT_EQ(table.kernel("h")["alu"], 4);
  EXPECT_THROW(static_cast<void>(table.kernel("f")), std::runtime_error);
  EXPECT_THROW(static_cast<void>(table.kernel("h")["fma"]), std::runtime_error);
}

TEST(sass_table, lines_that_are_not_understood_are_named) {
  for (char const* text : {"compiler 1\nalu 3\n", "compiler 1\nkernel\n", "kernel f\nalu many\n",
                           "kernel f\nalu 3 4\n", "kernel f\nalu 1\nalu 2\n"}) {
    try {
      static_cast<void>(parse_sass_table(text));
      FAIL() << text;
    } catch (std::runtime_error const& error) {
      EXPECT_NE(std::string(error.what()).find("of the SASS table is not `key value`"),
                std::string::npos)
          << text;
    }
  }
}

TEST(sass_table, the_built_in_one_has_the_kernels_of_the_model_and_those_of_block_scales) {
  sass_table const& table = built_in_sass_table();
  auto const of_block_scales =
      std::count_if(table.kernels.begin(), table.kernels.end(), [](sass_kernel const& kernel) {
        return kernel.name.find("block_scaled_fp8") != std::string::npos;
      });
  EXPECT_EQ(of_block_scales, 3);  // no shape of the model has them
  EXPECT_EQ(table.kernels.size(), own_kernels().size() + 3);
  for (own_kernel const& kernel : own_kernels()) {
    EXPECT_EQ(table.kernel(kernel.symbol).name, kernel.symbol);
  }
  EXPECT_EQ(table.sources_sha256.size(), 64u);
  for (sass_kernel const& kernel : table.kernels) {
    EXPECT_EQ(kernel["instructions"], kernel["alu"] + kernel["fma"] + kernel["fp16"] +
                                          kernel["xu"] + kernel["tensor"] + kernel["lsu"] +
                                          kernel["control"])
        << kernel.name;
  }
}

}  // namespace
}  // namespace qpn::bench::v100
