// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ops/cpu/cpu_backend.hpp"
#include "ops/random.hpp"
#include "support/error.hpp"

namespace qwen38::engine {
namespace {

struct row_case {
  sampling_params params;
  std::vector<float> logits;
  std::int32_t valid_ids = 0;
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> output;
  std::vector<std::int32_t> stop_ids;
  bool without_stop_ids = false;
  std::vector<std::uint32_t> mask = {};
  std::int64_t position = 0;

  [[nodiscard]] bool masks_out(std::int32_t id) const {
    auto const bit = static_cast<std::uint32_t>(id);
    return !mask.empty() && (mask[bit / 32] >> bit % 32 & 1U) == 0;
  }
};

std::int32_t sampled(row_case const& row) {
  sampler one(row.params, row.stop_ids, row.valid_ids);
  one.add_prompt(row.prompt);
  for (std::int32_t id : row.output) one.add(id);
  sampler_scratch scratch;
  return one.sample(row.logits, row.position, row.without_stop_ids, row.mask, scratch);
}

// The definition again, in doubles, by sorting everything.
struct reference_token {
  std::int32_t id = 0;
  float logit = 0;
  double probability = 0;
};

std::vector<reference_token> reference_kept(row_case const& row) {
  sampling_params const& p = row.params;
  std::vector<reference_token> tokens;
  for (std::int32_t id = 0; id < row.valid_ids; ++id) {
    if (row.without_stop_ids && std::ranges::count(row.stop_ids, id) > 0) continue;
    if (row.masks_out(id)) continue;
    float logit = row.logits[static_cast<std::size_t>(id)];
    auto const count = std::ranges::count(row.output, id);
    if (count > 0 || std::ranges::count(row.prompt, id) > 0) {
      logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
    }
    logit -= p.frequency_penalty * static_cast<float>(count);
    if (count > 0) logit -= p.presence_penalty;
    tokens.push_back({id, logit, 0});
  }
  std::ranges::sort(tokens, [](reference_token const& a, reference_token const& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  if (p.temperature < 1e-5F) {
    tokens.resize(1);
    return tokens;
  }
  double const top = tokens.front().logit;
  for (reference_token& one : tokens) {
    one.probability =
        std::exp((static_cast<double>(one.logit) - top) / static_cast<double>(p.temperature));
  }
  std::erase_if(tokens, [&](reference_token const& one) {
    return one.probability < static_cast<double>(p.min_p);
  });
  if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < tokens.size()) {
    tokens.resize(static_cast<std::size_t>(p.top_k));
  }
  double total = 0;
  for (reference_token const& one : tokens) total += one.probability;
  double sum = 0;
  std::size_t kept = 0;
  while (kept < tokens.size()) {
    sum += tokens[kept++].probability;
    if (sum >= static_cast<double>(p.top_p) * total) break;
  }
  if (p.top_p < 1) tokens.resize(kept);
  return tokens;
}

std::int32_t reference_sampled(row_case const& row) {
  std::vector<reference_token> const tokens = reference_kept(row);
  double total = 0;
  for (reference_token const& one : tokens) total += one.probability;
  std::uint64_t const bits =
      ops::random_bits(row.params.seed, row.position, ops::random_purpose::next_token);
  double const u = std::ldexp(static_cast<double>(bits >> 11), -53);
  double sum = 0;
  for (reference_token const& one : tokens) {
    sum += one.probability;
    if (u * total < sum) return one.id;
  }
  return tokens.back().id;
}

row_case random_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto const below = [&](std::uint64_t n) { return random() % n; };
  auto const uniform = [&] { return static_cast<float>(random() >> 40) * 0x1p-24F; };
  row_case row;
  std::size_t const sizes[] = {1, 2, 3, 17, 33, 100, 300, 1500};
  std::size_t const vocab_size = sizes[below(8)];
  row.valid_ids = static_cast<std::int32_t>(1 + below(vocab_size));
  std::uint64_t const shape = below(5);
  for (std::size_t i = 0; i < vocab_size; ++i) {
    float logit = 0;
    switch (shape) {
      case 0: logit = 20 * uniform() - 10; break;
      case 1: logit = static_cast<float>(below(4)); break;                // ties everywhere
      case 2: logit = static_cast<float>(below(100)) * 0.5F - 25; break;  // ties here and there
      case 3: logit = -std::log(1e-9F + uniform()) * (below(2) == 0 ? 3.F : -3.F); break;
      default: logit = std::ldexp(uniform() - 0.5F, static_cast<int>(below(40)) - 20); break;
    }
    row.logits.push_back(logit);
  }
  // Rows without a token often hold anything.
  for (auto i = static_cast<std::size_t>(row.valid_ids); i < vocab_size; ++i) {
    row.logits[i] = below(2) == 0 ? 1e30F : std::numeric_limits<float>::quiet_NaN();
  }
  sampling_params& p = row.params;
  float const temperatures[] = {0, 9e-6F, 1e-5F, 0.3F, 0.7F, 1, 1, 1.5F, 3, 10};
  p.temperature = temperatures[below(10)];
  float const top_ps[] = {0, 0.2F, 0.5F, 0.75F, 0.9F, 0.95F, 0.999F};
  if (below(2) == 0) p.top_p = top_ps[below(7)];
  float const min_ps[] = {1e-4F, 0.01F, 0.2F, 1};
  if (below(2) == 0) p.min_p = min_ps[below(4)];
  std::int32_t const top_ks[] = {1, 3, 5, 20, 100, 1000000};
  if (below(2) == 0) p.top_k = top_ks[below(6)];
  if (below(2) == 0) p.repetition_penalty = 0.5F + 1.5F * uniform();
  if (below(2) == 0) p.frequency_penalty = 4 * uniform() - 2;
  if (below(2) == 0) p.presence_penalty = 4 * uniform() - 2;
  p.seed = random();
  row.position = static_cast<std::int64_t>(below(std::uint64_t{1} << 40));
  auto const some_ids = [&](std::uint64_t most) {
    std::vector<std::int32_t> ids(below(most + 1));
    for (auto& id : ids)
      id = static_cast<std::int32_t>(below(static_cast<std::uint64_t>(row.valid_ids)));
    return ids;
  };
  row.prompt = some_ids(30);
  row.output = some_ids(30);
  if (row.valid_ids > 1) {
    row.stop_ids = {0, static_cast<std::int32_t>(vocab_size - 1)};
    row.without_stop_ids = row.valid_ids > 2 && below(2) == 0;
  }
  if (below(3) == 0) {
    row.mask.resize((vocab_size + 31) / 32);
    for (auto& word : row.mask) word = static_cast<std::uint32_t>(random() & random());
    row.mask[0] |= row.valid_ids > 2 ? 2U : 1U;  // something is left: 0 may be a stop id
    if (row.valid_ids <= 2) row.without_stop_ids = false;
  }
  return row;
}

TEST(sampler_all, agrees_with_a_sorting_reference_in_doubles) {
  int drawn = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    row_case const row = random_case(seed);
    ASSERT_EQ(sampled(row), reference_sampled(row)) << "seed " << seed;
    drawn += reference_kept(row).size() > 1 ? 1 : 0;
  }
  EXPECT_GT(drawn, 5000);  // not all cases leave a choice, but enough do
}

// Every id the reference keeps turns up, and no other.
void expect_exactly_kept(row_case row, std::set<std::int32_t> const& expected, char const* what) {
  std::set<std::int32_t> seen;
  for (row.position = 0; row.position < 4000; ++row.position) seen.insert(sampled(row));
  EXPECT_EQ(seen, expected) << what;
}

TEST(sampler_filters, keep_exactly_their_sets) {
  row_case equal;
  equal.logits.assign(8, 1.5F);
  equal.valid_ids = 8;
  auto with = [&](auto change) {
    row_case row = equal;
    change(row);
    return row;
  };
  expect_exactly_kept(equal, {0, 1, 2, 3, 4, 5, 6, 7}, "no filter");
  expect_exactly_kept(with([](row_case& r) { r.params.top_k = 3; }), {0, 1, 2}, "top_k 3");
  expect_exactly_kept(with([](row_case& r) { r.params.top_k = 8; }), {0, 1, 2, 3, 4, 5, 6, 7},
                      "top_k 8");
  expect_exactly_kept(with([](row_case& r) { r.params.top_p = 0.5F; }), {0, 1, 2, 3}, "half");
  expect_exactly_kept(with([](row_case& r) { r.params.top_p = 0.50001F; }), {0, 1, 2, 3, 4},
                      "over half");
  expect_exactly_kept(with([](row_case& r) { r.params.top_p = 0; }), {0}, "top_p 0");
  expect_exactly_kept(with([](row_case& r) { r.params.min_p = 1; }), {0, 1, 2, 3, 4, 5, 6, 7},
                      "min_p 1");
  expect_exactly_kept(with([](row_case& r) {
                        r.params.top_k = 4;  // of whose mass top_p takes half
                        r.params.top_p = 0.5F;
                      }),
                      {0, 1}, "top_p after top_k");
  expect_exactly_kept(with([](row_case& r) { r.valid_ids = 5; }), {0, 1, 2, 3, 4}, "valid_ids 5");
  expect_exactly_kept(with([](row_case& r) {
                        r.stop_ids = {3, 3, 6};
                        r.without_stop_ids = true;
                      }),
                      {0, 1, 2, 4, 5, 7}, "stop ids banned");

  row_case halves;  // probabilities 1/2, 1/4, 1/8, 1/16, 1/16
  for (int halvings : {1, 2, 3, 4, 4})
    halves.logits.push_back(static_cast<float>(-halvings * std::log(2.0)));
  halves.valid_ids = 5;
  row_case one = halves;
  one.params.min_p = 0.24F;
  expect_exactly_kept(one, {0, 1, 2}, "min_p 0.24");
  one.params.min_p = 0.26F;
  expect_exactly_kept(one, {0, 1}, "min_p 0.26");
  one.params.top_p = 0.7F;  // 2/3 of what min_p left is not enough
  expect_exactly_kept(one, {0, 1}, "top_p 0.7 after min_p");
  one.params.top_p = 0.66F;
  expect_exactly_kept(one, {0}, "top_p 0.66 after min_p");
  row_case hot = halves;  // at temperature 2 the third has half of the first's probability
  hot.params.temperature = 2;
  hot.params.min_p = 0.49F;
  expect_exactly_kept(hot, {0, 1, 2}, "min_p after temperature");
}

TEST(sampler_greedy, takes_the_lowest_of_equal_ids_and_none_beyond_valid_ids) {
  row_case row;
  row.params.temperature = 0;
  row.logits = {0, 2, 1, 2, 9};
  row.valid_ids = 4;
  EXPECT_EQ(sampled(row), 1);
  row.stop_ids = {1};
  EXPECT_EQ(sampled(row), 1);
  row.without_stop_ids = true;
  EXPECT_EQ(sampled(row), 3);
  row.logits = {-0.0F, 0.0F, -1, -1, 9};
  row.without_stop_ids = false;
  EXPECT_EQ(sampled(row), 0);
}

TEST(sampler_penalties, count_prompt_and_output_as_defined) {
  row_case row;
  row.params.temperature = 0;
  row.logits = {4, 3.5F, -1, 3};
  row.valid_ids = 4;
  row.prompt = {0, 0};
  row.params.repetition_penalty = 1.25F;  // 4 / 1.25 = 3.2
  EXPECT_EQ(sampled(row), 1);
  row.output = {1};  // 3.5 / 1.25 = 2.8
  EXPECT_EQ(sampled(row), 0);
  row.params.repetition_penalty = 1;
  row.params.presence_penalty = 1;  // the prompt does not count: 4, 2.5, -1, 3
  EXPECT_EQ(sampled(row), 0);
  row.output = {0, 1};  // 3, 2.5, -1, 3
  EXPECT_EQ(sampled(row), 0);
  row.output = {0, 0, 1};
  row.params.frequency_penalty = 0.25F;  // 2.5, 2.25, -1, 3
  EXPECT_EQ(sampled(row), 3);
  row.params = {};
  row.params.temperature = 0;
  row.params.repetition_penalty = 2;
  row.logits = {-1, -1.5F, -3, -3};
  row.output = {0};  // -2: a negative logit moves down too
  row.prompt.clear();
  EXPECT_EQ(sampled(row), 1);
}

/// What a backend chooses for the rows of a verify pass whose drafts are `drafts`, the first of
/// them as a place in the list of tokens.
std::vector<ops::ranked_id> chosen_by_backend(sampler const& by, std::vector<float> const& logits,
                                              std::int32_t valid_ids, std::int64_t position,
                                              std::vector<std::int32_t> const& drafts) {
  auto const backend = ops::cpu::make_backend(1);
  auto const rows = std::ssize(drafts) + 1;
  ops::tensor view;
  auto const memory =
      backend->make_tensor(ops::row_kind::stream, rows, std::ssize(logits) / rows, view);
  std::ranges::copy(logits, static_cast<float*>(view.data));
  ops::token_list tokens;
  auto const held = backend->make_tokens(rows + 1, tokens);
  std::vector<std::int32_t> ids = {0};
  ids.insert(ids.end(), drafts.begin(), drafts.end());
  if (!drafts.empty()) {
    tokens.back().id = drafts.front();
    ids[1] = ops::id_in_place(rows);
  }
  std::vector<ops::row_choice> choices;
  for (std::int64_t r = 0; r < rows; ++r) choices.push_back({*by.choice(false), position + r});
  ops::row_span const span{0, 0, 0, rows, true, {}, by.seen()};
  auto const p = backend->make_pass({rows, 1, 0, 0, rows, std::ssize(by.seen())});
  backend->set_pass(*p, {.spans = {&span, 1}, .ids = ids, .choices = choices});
  auto const wanted = tokens.first(static_cast<std::size_t>(rows));
  backend->choose_tokens(*p, tokens, view, valid_ids, wanted);
  return {wanted.begin(), wanted.end()};
}

TEST(sampler_choice, is_taken_by_a_backend_with_its_penalties_row_by_row) {
  int penalised = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    row_case row = random_case(seed);
    std::mt19937_64 random(seed + 1);
    std::vector<std::int32_t> drafts(random() % 16);
    for (std::int32_t& id : drafts) {
      // Few of them, so that they meet each other and what was seen before.
      id = static_cast<std::int32_t>(
          random() % std::min<std::uint64_t>(static_cast<std::uint64_t>(row.valid_ids), 5));
    }
    std::size_t const width = row.logits.size();
    auto const valid = static_cast<std::size_t>(row.valid_ids);
    std::vector<float> logits;
    for (std::size_t r = 0; r <= drafts.size(); ++r) {
      for (std::size_t i = 0; i < width; ++i)
        logits.push_back(row.logits[i < valid ? (i + 3 * r) % valid : i]);
    }
    sampler host(row.params, {}, row.valid_ids);
    host.add_prompt(row.prompt);
    for (std::int32_t id : row.output) host.add(id);
    auto const got = chosen_by_backend(host, logits, row.valid_ids, row.position, drafts);
    sampler_scratch scratch;
    for (std::size_t r = 0; r <= drafts.size(); ++r) {
      auto const of = std::span(logits).subspan(r * width, width);
      auto const position = row.position + static_cast<std::int64_t>(r);
      ASSERT_EQ(got[r].id, host.sample(of, position, false, {}, scratch))
          << "seed " << seed << ", row " << r << " of " << drafts.size() + 1;
      if (r < drafts.size()) host.add(drafts[r]);
    }
    penalised += host.seen().empty() ? 0 : 1;
  }
  EXPECT_GT(penalised, 200);
}

TEST(sampler_choice, holds_as_many_ids_as_a_backend_takes_and_none_more) {
  std::int32_t const valid = ops::max_seen + 10;
  sampling_params params;
  params.temperature = 0;
  params.frequency_penalty = 2;
  sampler one(params, {}, valid);
  for (std::int32_t id = 0; id < ops::max_seen; ++id) one.add(id);
  one.add(7);
  ASSERT_NE(one.choice(false), nullptr);
  EXPECT_EQ(std::ssize(one.seen()), ops::max_seen);
  std::vector<float> logits(static_cast<std::size_t>(2 * valid), 1.0F);
  for (int row : {0, 1}) {
    logits[static_cast<std::size_t>(row * valid + valid - 3)] = 0.5F;  // not seen
    logits[static_cast<std::size_t>(row * valid + 7)] = 4.75F;         // twice: 0.75
    logits[static_cast<std::size_t>(row * valid + valid - 2)] = -9;
    logits[static_cast<std::size_t>(row * valid + valid - 1)] = -9;
    for (std::int32_t id = ops::max_seen; id < valid - 3; ++id)
      logits[static_cast<std::size_t>(row * valid + id)] = -9;
  }
  auto const got = chosen_by_backend(one, logits, valid, 0, {7});
  EXPECT_EQ(got[0].id, 7);
  EXPECT_EQ(got[0].value, 0.75F);
  EXPECT_EQ(got[1].id, valid - 3);  // three times: -1.25
  one.add(valid - 1);
  EXPECT_EQ(one.choice(false), nullptr);
}

TEST(sampler_draws, follow_the_distribution) {
  row_case row;
  row.valid_ids = 40;
  for (int id = 0; id < 40; ++id) row.logits.push_back(static_cast<float>(id % 7) * 0.4F);
  row.params.temperature = 0.8F;
  row.params.top_p = 0.98F;
  row.params.seed = 11;
  std::vector<reference_token> const tokens = reference_kept(row);
  double total = 0;
  for (reference_token const& one : tokens) total += one.probability;
  std::map<std::int32_t, int> seen;
  constexpr int draws = 200000;
  for (row.position = 0; row.position < draws; ++row.position) ++seen[sampled(row)];
  double chi_square = 0;
  for (reference_token const& one : tokens) {
    double const expected = draws * one.probability / total;
    chi_square += std::pow(seen[one.id] - expected, 2) / expected;
  }
  EXPECT_EQ(seen.size(), tokens.size());
  // Mean df, variance 2 df; five standard deviations.
  double const df = static_cast<double>(tokens.size()) - 1;
  EXPECT_LT(chi_square, df + 5 * std::sqrt(2 * df));
  EXPECT_GT(chi_square, df - 5 * std::sqrt(2 * df));
}

TEST(sampler_extremes, stay_finite_and_in_range) {
  float const largest = std::numeric_limits<float>::max();
  row_case row;
  row.valid_ids = 3;
  row.logits = {largest, -largest, std::numeric_limits<float>::denorm_min()};
  for (float temperature : {0.0F, 1e-5F, 1.0F, 100.0F, largest}) {
    for (float penalty : {0.01F, 1.0F, 100.0F}) {
      row.params.temperature = temperature;
      row.params.repetition_penalty = penalty;
      row.params.frequency_penalty = penalty == 1 ? 0 : largest;
      row.params.presence_penalty = penalty == 1 ? 0 : -largest;
      row.output = {0, 1, 2, 2};
      for (row.position = 0; row.position < 50; ++row.position) {
        std::int32_t const id = sampled(row);
        ASSERT_GE(id, 0);
        ASSERT_LT(id, 3);
      }
    }
  }
}

std::string message_of(row_case const& row) {
  try {
    static_cast<void>(sampled(row));
  } catch (error const& what) {
    EXPECT_EQ(what.kind(), error_kind::internal);
    return what.what();
  }
  return "";
}

TEST(sampler_errors, a_logit_that_is_not_finite_never_becomes_an_id) {
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (float temperature : {0.0F, 1.0F}) {
      for (std::size_t at = 0; at < 5; ++at) {
        row_case row;
        row.logits = {1, 2, 3, 2, 1};
        row.valid_ids = 5;
        row.params.temperature = temperature;
        row.logits[at] = bad;
        EXPECT_EQ(message_of(row),
                  "The model's logit of id " + std::to_string(at) + " is not a finite number.");
      }
    }
  }
}

TEST(sampler_errors, an_id_of_minus_infinity_is_never_chosen) {
  row_case row;
  row.logits = {1, 2, -std::numeric_limits<float>::infinity(), 2};
  row.valid_ids = 4;
  row.params.presence_penalty = -1000;  // even where it is wanted
  row.output = {2};
  expect_exactly_kept(row, {0, 1, 3}, "-infinity");
  row.logits.assign(4, row.logits[2]);
  EXPECT_EQ(message_of(row), "No token may be sampled: every id is banned.");
}

TEST(sampler_errors, says_when_every_id_is_banned) {
  row_case row;
  row.logits = {1, 2};
  row.valid_ids = 2;
  row.stop_ids = {0, 1};
  row.without_stop_ids = true;
  for (float temperature : {0.0F, 1.0F}) {
    row.params.temperature = temperature;
    EXPECT_EQ(message_of(row), "No token may be sampled: every id is banned.");
    row_case masked = row;
    masked.without_stop_ids = false;
    masked.mask = {4};  // the third id is none
    EXPECT_EQ(message_of(masked), "No token may be sampled: every id is banned.");
  }
}

TEST(sampler_check_sampling, names_the_field_that_is_out_of_range) {
  float const nan = std::numeric_limits<float>::quiet_NaN();
  float const inf = std::numeric_limits<float>::infinity();
  auto const refused = [](auto change) -> std::string {
    sampling_params params;
    change(params);
    try {
      check_sampling(params);
    } catch (error const& what) {
      EXPECT_EQ(what.kind(), error_kind::invalid_argument);
      std::string const sentence = what.what();
      return sentence.substr(0, sentence.find(':'));
    }
    return "";
  };
  EXPECT_EQ(refused([](sampling_params&) {}), "");
  for (float bad : {-1.0F, nan, inf}) {
    EXPECT_EQ(refused([&](sampling_params& p) { p.temperature = bad; }), "temperature");
    EXPECT_EQ(refused([&](sampling_params& p) { p.top_p = bad; }), "top_p");
    EXPECT_EQ(refused([&](sampling_params& p) { p.min_p = bad; }), "min_p");
    EXPECT_EQ(refused([&](sampling_params& p) { p.repetition_penalty = bad; }),
              "repetition_penalty");
  }
  for (float bad : {nan, inf, -inf}) {
    EXPECT_EQ(refused([&](sampling_params& p) { p.frequency_penalty = bad; }), "frequency_penalty");
    EXPECT_EQ(refused([&](sampling_params& p) { p.presence_penalty = bad; }), "presence_penalty");
  }
  EXPECT_EQ(refused([](sampling_params& p) { p.top_p = 1.01F; }), "top_p");
  EXPECT_EQ(refused([](sampling_params& p) { p.min_p = 1.01F; }), "min_p");
  EXPECT_EQ(refused([](sampling_params& p) { p.top_k = -1; }), "top_k");
  EXPECT_EQ(refused([](sampling_params& p) { p.repetition_penalty = 0; }), "repetition_penalty");
}

}  // namespace
}  // namespace qwen38::engine
