// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <vector>

#include "checkpoint/config.hpp"
#include "checkpoint/repository.hpp"
#include "model/qwen38.hpp"
#include "model/rank_group.hpp"
#include "ops/cpu/cpu_backend.hpp"
#include "parallel/in_process.hpp"

namespace qwen38::test {

/// The oracle's checkpoint: 4 layers, 500 of 512 ids valid, every norm, gate and tap random.
inline constexpr char const* tiny_directory = "golden/tiny";
inline constexpr std::int32_t tiny_valid_ids = 500;

inline std::unique_ptr<model::qwen38_model> open_model(std::filesystem::path const& directory,
                                                       std::int32_t valid_ids, int lanes = 1,
                                                       int threads = 2,
                                                       std::int64_t context = 512) {
  return std::make_unique<model::qwen38_model>(
      std::make_shared<checkpoint::repository>(directory), checkpoint::load_model_config(directory),
      ops::cpu::make_backend(threads), model::qwen38_options{valid_ids, lanes, context});
}

/// On a backend of the caller's choice.
inline std::unique_ptr<model::qwen38_model> open_model_on(std::unique_ptr<ops::backend> backend,
                                                          std::filesystem::path const& directory,
                                                          model::qwen38_options const& options) {
  return std::make_unique<model::qwen38_model>(std::make_shared<checkpoint::repository>(directory),
                                               checkpoint::load_model_config(directory),
                                               std::move(backend), options);
}

/// Pages of a lane's own, as many as a sequence as long as the context needs, for models whose pool
/// has them.
inline std::vector<std::int32_t> lane_pages(model::causal_lm const& lm, int lane) {
  auto const& limits = lm.get_limits();
  std::vector<std::int32_t> pages(
      static_cast<std::size_t>((limits.max_context + limits.page_tokens - 1) / limits.page_tokens));
  std::iota(pages.begin(), pages.end(), static_cast<std::int32_t>(pages.size()) * lane);
  return pages;
}

/// The same model over `tp` ranks.
inline std::unique_ptr<model::rank_group> open_group(std::filesystem::path const& directory,
                                                     std::int32_t valid_ids, int tp, int lanes = 1,
                                                     int threads = 1, std::int64_t context = 512,
                                                     std::int32_t snapshots = 0,
                                                     std::int32_t prefill_pass = 64) {
  return std::make_unique<model::rank_group>(
      parallel::make_in_process_group(tp), [&](std::shared_ptr<parallel::communicator> ranks) {
        return std::make_unique<model::qwen38_model>(
            std::make_shared<checkpoint::repository>(directory),
            checkpoint::load_model_config(directory), ops::cpu::make_backend(threads),
            model::qwen38_options{.valid_ids = valid_ids,
                                  .lanes = lanes,
                                  .max_context = context,
                                  .snapshots = snapshots,
                                  .prefill_pass = prefill_pass,
                                  .ranks = std::move(ranks)});
      });
}

/// Logits [ids, vocab_size] of a whole sequence, fed in passes that end at `cuts`.
inline std::vector<float> all_logits(model::causal_lm& lm, int lane,
                                     std::vector<std::int32_t> const& ids,
                                     std::vector<std::size_t> cuts = {}) {
  lm.begin(lane, lane_pages(lm, lane));
  cuts.push_back(ids.size());
  std::vector<float> logits;
  std::size_t first = 0;
  for (std::size_t cut : cuts) {
    model::sequence_rows const rows{lane, static_cast<std::int64_t>(first),
                                    std::span(ids).subspan(first, cut - first), false, 0};
    auto const part = lm.forward({&rows, 1});
    logits.insert(logits.end(), part.begin(), part.end());
    first = cut;
  }
  return logits;
}

/// A fixed sequence of valid ids.
inline std::vector<std::int32_t> some_ids(std::size_t count, std::uint32_t seed) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    ids.push_back(static_cast<std::int32_t>((seed >> 8) % tiny_valid_ids));
  }
  return ids;
}

}  // namespace qwen38::test
