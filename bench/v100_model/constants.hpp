// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

// What the model takes as given about a V100-SXM2, each with its source. Nothing here is measured
// by this project: it has no V100.

namespace qpn::bench::v100 {

struct constant {
  char const* name;
  double value;
  char const* unit;
  char const* source;
};

inline constexpr constant sm_count{"multiprocessors", 80, "", "V100-SXM2 data sheet"};
inline constexpr constant clock_ghz{
    "clock", 1.53, "GHz", "V100-SXM2 data sheet, boost; peer's probes ran at it (1Cat-vLLM)"};
inline constexpr constant read_gb_s{"read ceiling", 879, "GB/s",
                                    "predecessor's read-only kernel (v100-skinny 1.1), measured"};
inline constexpr constant l2_gb_s{
    "L2 read ceiling", 2155, "GB/s",
    "arXiv 1804.06826, measured on a V100-PCIe at 1.38 GHz; quoted from memory"};
inline constexpr constant schedulers{"schedulers of a multiprocessor", 4, "",
                                     "Volta whitepaper; each issues one instruction a cycle"};
inline constexpr constant pipe_cycles{"ALU, FMA and FP16 pipe", 2, "cycles an instruction",
                                      "Volta whitepaper: 16 lanes each, per scheduler"};
inline constexpr constant xu_cycles{"conversion pipe", 8, "cycles an instruction",
                                    "Volta whitepaper: 4 lanes per scheduler"};
inline constexpr constant hmma_cycles{"HMMA.884 step", 8.38 / 4, "cycles an instruction",
                                      "8.38 cycles for the 4 steps of an m8n8k4, measured "
                                      "(1Cat-vLLM)"};
inline constexpr constant wavefront_cycles{"L1 and shared memory", 1, "cycles a wavefront",
                                           "Volta whitepaper: 128 bytes a cycle"};
inline constexpr constant shared_latency{"shared memory latency", 26.4, "cycles",
                                         "measured at 1.53 GHz (1Cat-vLLM)"};
inline constexpr constant l2_latency{"L2 latency", 210.7, "cycles",
                                     "measured at 1.53 GHz (1Cat-vLLM)"};
inline constexpr constant load_latency{
    "load of a weight until its use, beside others'", 700, "cycles",
    "the middle of 600 to 800 of a loaded V100, published estimates; not fitted"};
inline constexpr constant add_latency{"dependent add", 4, "cycles", "arXiv 1804.06826"};
inline constexpr constant barrier_cycles{"CTA barrier", 34, "cycles",
                                         "assumed: as store, load and warp barrier through shared "
                                         "memory, measured (1Cat-vLLM)"};
inline constexpr constant prologue_cycles{"index arithmetic before a part's first load", 100,
                                          "cycles", "assumed"};
inline constexpr constant decode_nvfp4{"predecessor: decoding 16 nvfp4 weights of a lane", 38,
                                       "instructions",
                                       "estimated from its published description, 8 of them HMUL2"};
inline constexpr constant decode_fp8{"predecessor: decoding 16 fp8 weights of a lane", 40,
                                     "instructions", "estimated from its published description"};
inline constexpr constant fma_share{"predecessor: part of its integer decoding on the FMA pipe",
                                    0.2, "", "assumed: shifts that the compiler turns into IMAD"};
inline constexpr constant stall_ratio{"predecessor: stall cycles an instruction", 1.25, "cycles",
                                      "assumed: our nvfp4 and fp8 loops have 1.2 to 1.5"};
inline constexpr constant registers_mt1{"predecessor: registers with one row tile", 56, "",
                                        "published for QPN gen 1, assumed for the others"};
inline constexpr constant registers_mt2{"predecessor: registers with two row tiles", 80, "",
                                        "assumed"};

/// All of them, in the order of the page.
[[nodiscard]] std::span<constant const> published_constants();

/// What the model cannot know and fits to the predecessor's timings of m = 1 and m = 8.
struct fitted_constants {
  double launch_us;     ///< of a launch that reads nothing: ramp and drain
  double interference;  ///< exponent p: busy resources take (sum of their times^p)^(1/p)

  [[nodiscard]] friend bool operator==(fitted_constants const&,
                                       fitted_constants const&) noexcept = default;
};

[[nodiscard]] constexpr double bytes_per_cycle(constant const& gb_s) noexcept {
  return gb_s.value / clock_ghz.value;
}

[[nodiscard]] constexpr double microseconds(double cycles) noexcept {
  return cycles / (clock_ghz.value * 1e3);
}

}  // namespace qpn::bench::v100
