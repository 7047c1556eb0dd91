// SPDX-License-Identifier: Apache-2.0
// The projections of one GDN layer and one attention layer of Qwen3.8-27B in sequence, as plain
// launches and, where the library offers it, as launches that overlap. docs/gemm_roofline.md says
// how it measures.

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "gemm_chain/chain.hpp"
#include "gemm_chain/chain_run.hpp"
#include "support/machine.hpp"
#include "support/output_check.hpp"
#include "support/overlap.hpp"
#include "support/run_context.hpp"

namespace {

using namespace qpn::bench;

int run(chain::options const& chosen, std::string const& command) {
  machine const gpu;
  run_context const context = gpu.context(command);
  if (!offers_overlap<>) {
    std::fprintf(stderr, "PDL is not offered by this version of the library: pdl_us is null.\n");
  }
  std::vector<chain::measured_chain> rows;
  int code = 0;
  for (chain::layer const& layer : chain::layers()) {
    for (std::int64_t const m : chosen.m) {
      try {
        rows.push_back(chain::measure(layer, m, chosen.replays, gpu));
      } catch (wrong_output const& error) {
        std::fprintf(stderr, "gemm_chain: m = %lld: %s\n", static_cast<long long>(m), error.what());
        code = 1;
      }
    }
  }
  std::fputs(markdown_of(rows, context).c_str(), stdout);
  if (!chosen.json_file.empty()) write_file(chosen.json_file, json_of(rows, context));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    chain::options const chosen = chain::parse(argc, argv);
    if (chosen.help) {
      std::fputs(chain::usage, stdout);
      return 0;
    }
    return run(chosen, command_line(argc, argv));
  } catch (std::exception const& error) {
    std::fprintf(stderr, "gemm_chain: %s\n", error.what());
    return 2;
  }
}
