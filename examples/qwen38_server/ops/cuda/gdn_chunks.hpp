// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/cuda/gdn_memory.hpp"
#include "ops/cuda/pass_view.hpp"

namespace qwen38::ops::cuda {

// The gated delta rule over 64 rows at once. With S the state before the chunk, G_i the sum of the
// rows' log decays up to row i, and everything of one value head:
//
//   A_ij = beta_i (k_i . k_j) exp(G_i - G_j), j < i      T = (I + A)^-1
//   P_ij = (q_i . k_j) exp(G_i - G_j), j <= i
//   D = T (beta (V - exp(G) K S))
//   out = exp(G) Q S + P D
//   S <- exp(G_63) S + K^T (exp(G_63 - G) D)
//
// gdn_chunk_factors computes T and P, which do not depend on S, for all chunks at once; then
// gdn_chunk_scan goes through a span's chunks. No exponent is positive.
//
// Which rows are in chunks follows from the span's position and rows: the whole chunks of a final
// span that begins on a multiple of 64. Prefill passes begin and end there, but for the last of a
// prompt, so each row is computed the same way however a prompt is cut into passes.

inline constexpr int gdn_chunk = 64;          ///< rows
inline constexpr int gdn_chunk_columns = 32;  ///< of S that a CTA of the scan advances

[[nodiscard]] QPN_HD constexpr int gdn_chunks_of(span_entry const& span) {
  bool const whole = span.tentative == 0 && span.position % gdn_chunk == 0;
  return whole ? span.rows / gdn_chunk : 0;
}

/// What the factors of one value head's chunk are to the scan, besides T and P.
struct gdn_chunk_gates {
  float before[gdn_chunk];  ///< exp(G_i): of S in row i
  float beta[gdn_chunk];
  float after[gdn_chunk];  ///< exp(G_63 - G_i): of row i in the new S
};

/// Scratch for the chunks of a pass. A chunk's place is the number of its first row in the pass,
/// divided by 64: chunks do not overlap, so no two have the same. Matrices are fp16.
struct gdn_chunk_scratch {
  std::uint16_t* keys = nullptr;     ///< [place][key head][row][key_dim]
  std::uint16_t* queries = nullptr;  ///< the same
  std::uint16_t* solve = nullptr;    ///< T [place][value head][row][row]
  std::uint16_t* recall = nullptr;   ///< P, the same
  gdn_chunk_gates* gates = nullptr;  ///< [place][value head]
};

inline constexpr int gdn_key_operand = gdn_chunk * gdn_key_dim;  ///< fp16 of a chunk's K or Q
inline constexpr int gdn_row_operand = gdn_chunk * gdn_chunk;    ///< of T or P

}  // namespace qwen38::ops::cuda
