// SPDX-License-Identifier: Apache-2.0
// The device's choice of tokens against the CPU's: the same id to the last tie.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "test/ops/cuda/two_backends.hpp"

namespace qwen38::test {
namespace {

using ops::row_kind;

/// Whether launches take long: on the emulator, and under racecheck (test/sanitize.sh).
bool runs_slowly() {
  return test_device_is_emulated() || std::getenv("QPN_TEST_FEW_SEEDS") != nullptr;
}

struct choice_rows {
  std::int64_t columns = 0;
  std::int32_t valid = 0;
  std::vector<float> logits;
  std::vector<ops::row_choice> choices;
  // Of choices with penalties: one span of all rows.
  std::vector<ops::token_count> seen;
  std::vector<std::int32_t> ids;
  std::vector<ops::ranked_id> tokens;  ///< of ids that are places
};

std::vector<ops::ranked_id> chosen_on(test_backend device, choice_rows const& rows) {
  auto const count = std::ssize(rows.choices);
  ops::tensor const logits = device.make(row_kind::stream, count, rows.logits);
  ops::token_list chosen;
  auto const memory = device->make_tokens(count, chosen);
  ops::token_list tokens;
  auto const drafted = device->make_tokens(count, tokens);
  device.write(rows.tokens, tokens);
  auto const p = device->make_pass(
      {.rows = count, .spans = 1, .choices = count, .seen = std::ssize(rows.seen)});
  ops::pass_rows pass{.ids = rows.ids, .choices = rows.choices};
  ops::row_span const span{0, 0, 0, count, true, {}, rows.seen};
  if (!rows.ids.empty()) pass.spans = {&span, 1};
  device->set_pass(*p, pass);
  device->choose_tokens(*p, tokens, logits, rows.valid, chosen);
  std::vector<ops::ranked_id> got(chosen.size());
  device->read(chosen, got);
  return got;
}

void expect_same(choice_rows const& rows, std::string const& what) {
  auto const wanted = chosen_on(test_backend::cpu(), rows);
  auto const got = chosen_on(test_backend::cuda(), rows);
  for (std::size_t r = 0; r < wanted.size(); ++r) {
    EXPECT_EQ(got[r].id, wanted[r].id) << what << ", row " << r;
    EXPECT_TRUE(got[r].value == wanted[r].value ||
                (std::isnan(got[r].value) && std::isnan(wanted[r].value)))
        << what << ", row " << r << ": " << got[r].value << " instead of " << wanted[r].value;
  }
}

choice_rows random_rows(std::uint64_t seed, std::int64_t columns, std::size_t count) {
  std::mt19937_64 random(seed);
  auto const below = [&](std::uint64_t n) { return random() % n; };
  auto const uniform = [&] { return static_cast<float>(random() >> 40) * 0x1p-24F; };
  choice_rows rows;
  rows.columns = columns;
  rows.valid = static_cast<std::int32_t>(columns - static_cast<std::int64_t>(below(3)));
  rows.valid = std::max(rows.valid, 1);
  for (std::size_t r = 0; r < count; ++r) {
    std::uint64_t const shape = below(5);
    for (std::int64_t i = 0; i < columns; ++i) {
      float logit = 0;
      switch (shape) {
        case 0: logit = 20 * uniform() - 10; break;
        case 1: logit = static_cast<float>(below(4)) - 2; break;  // ties everywhere, of 0 and -0
        case 2: logit = i % 7 == 0 ? -std::numeric_limits<float>::infinity() : 3 * uniform(); break;
        case 3: logit = std::ldexp(uniform() - 0.5F, static_cast<int>(below(40)) - 20); break;
        default: logit = 1; break;
      }
      rows.logits.push_back(logit == 0 && below(2) == 0 ? -0.0F : logit);
    }
    ops::row_choice one;
    float const temperatures[] = {0, 1e-5F, 0.3F, 0.7F, 1, 1.5F, 10};
    one.how.temperature = temperatures[below(7)];
    float const top_ps[] = {0, 0.5F, 0.9F, 0.95F, 1, 1};
    one.how.top_p = top_ps[below(6)];
    std::int32_t const top_ks[] = {0, 0, 1, 3, 20, 64, 1000000};
    one.how.top_k = top_ks[below(7)];
    std::uint64_t const reaches[] = {ops::full_reach, ops::full_reach, 0, std::uint64_t{3} << 48};
    one.how.reach = reaches[below(4)];
    one.how.seed = random();
    one.position = static_cast<std::int64_t>(below(1U << 20));
    rows.choices.push_back(one);
  }
  return rows;
}

TEST(cuda_choose, agrees_with_the_cpu_on_random_rows) {
  std::uint64_t const seeds = runs_slowly() ? 4 : 200;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    std::int64_t const columns[] = {1, 17, 300, 1500};
    expect_same(random_rows(seed, columns[seed % 4], 6), "seed " + std::to_string(seed));
  }
}

/// The rows of a verify pass: what was seen, and drafts some of which are places in a list.
choice_rows with_penalties(choice_rows rows, std::uint64_t seed, std::size_t most_seen) {
  std::mt19937_64 random(seed);
  auto const below = [&](std::uint64_t n) { return random() % n; };
  auto const valid = static_cast<std::uint64_t>(rows.valid);
  std::vector<std::int32_t> order(valid);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  order.resize(std::min(order.size(), most_seen));
  for (std::int32_t id : order) {
    rows.seen.push_back({id, static_cast<std::int32_t>(below(3) == 0 ? below(40) : below(2))});
  }
  for (std::size_t r = 0; r < rows.choices.size(); ++r) {
    float const repetitions[] = {1, 1, 1.1F, 0.5F, 100};
    float const additions[] = {0, 0.3F, -0.7F, 2, 3e38F};
    rows.choices[r].how.penalties = {repetitions[below(5)], additions[below(5)],
                                     additions[below(5)]};
    auto const id = static_cast<std::int32_t>(below(std::min<std::uint64_t>(valid, 1 + below(9))));
    rows.tokens.push_back({0, id});
    rows.ids.push_back(below(2) == 0 ? id : ops::id_in_place(static_cast<std::int64_t>(r)));
  }
  return rows;
}

TEST(cuda_choose, penalties_agree_with_the_cpus_for_all_rows_of_a_verify_pass) {
  std::uint64_t const seeds = runs_slowly() ? 10 : 200;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    std::int64_t const columns[] = {1, 17, 300, 1500};
    std::size_t const seen[] = {0, 1, 5, 700, 2000};
    choice_rows const rows = random_rows(seed + 1000, columns[seed % 4], 1 + 7 * seed % 16);
    expect_same(with_penalties(rows, seed, seen[seed % 5]), "seed " + std::to_string(seed));
  }
  auto const wide = random_rows(5, runs_slowly() ? 3000 : 248320, 3);
  expect_same(with_penalties(wide, 5, ops::max_seen), "as many as may be seen");
}

TEST(cuda_choose, penalties_leave_what_is_no_number_as_it_is) {
  float const infinity = std::numeric_limits<float>::infinity();
  choice_rows rows = random_rows(3, 40, 3);
  rows.valid = 40;
  for (ops::row_choice& one : rows.choices) {
    one.how = {.temperature = 1, .penalties = {2, 1, 1}};
  }
  rows.logits[20] = std::nanf("");
  rows.logits[40 + 7] = infinity;
  std::fill_n(rows.logits.begin() + 80, 40, -infinity);
  for (std::int32_t id = 0; id < 40; ++id) rows.seen.push_back({id, 1});
  rows.ids = {0, 20, 7};
  auto const got = chosen_on(test_backend::cuda(), rows);
  EXPECT_EQ(got[0].id, 20);
  EXPECT_TRUE(std::isnan(got[0].value));
  EXPECT_EQ(got[1].id, 7);
  EXPECT_EQ(got[1].value, infinity);
  EXPECT_EQ(got[2].value, -infinity);
  expect_same(rows, "broken rows with penalties");
}

TEST(cuda_choose, agrees_with_the_cpu_on_a_whole_vocabulary) {
  std::int64_t const columns = runs_slowly() ? 5000 : 248320;
  expect_same(random_rows(77, columns, runs_slowly() ? 2 : 32), "vocabulary");
}

TEST(cuda_choose, a_row_that_is_no_number_shows_and_one_of_minus_infinity_is_told_apart) {
  float const infinity = std::numeric_limits<float>::infinity();
  choice_rows rows = random_rows(3, 40, 4);
  rows.valid = 40;
  for (ops::row_choice& one : rows.choices) one.how = {.temperature = 1};
  rows.logits[20] = std::nanf("");
  rows.logits[19] = infinity;
  rows.logits[40 + 7] = infinity;
  std::fill_n(rows.logits.begin() + 80, 40, -infinity);
  expect_same(rows, "broken rows");
  auto const got = chosen_on(test_backend::cuda(), rows);
  EXPECT_EQ(got[0].id, 20);
  EXPECT_TRUE(std::isnan(got[0].value));
  EXPECT_EQ(got[1].id, 7);
  EXPECT_EQ(got[2].value, -infinity);
  EXPECT_TRUE(std::isfinite(got[3].value));
}

// Every id that is kept turns up, and no other.
TEST(cuda_choose, draws_exactly_from_what_is_kept) {
  choice_rows rows;
  rows.columns = 6;
  rows.valid = 6;
  for (std::int64_t position = 0; position < 64; ++position) {
    for (float logit : {1.0F, 2.0F, 2.0F, 1.5F, -50.0F, 2.0F}) rows.logits.push_back(logit);
    rows.choices.push_back({{.temperature = 1, .top_k = 4}, position});
  }
  std::set<std::int32_t> seen;
  for (ops::ranked_id const& one : chosen_on(test_backend::cuda(), rows)) seen.insert(one.id);
  EXPECT_EQ(seen, (std::set<std::int32_t>{1, 2, 3, 5}));
}

}  // namespace
}  // namespace qwen38::test
