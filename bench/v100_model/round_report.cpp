// SPDX-License-Identifier: Apache-2.0
#include "round_report.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "markdown_text.hpp"
#include "round_constants.hpp"
#include "support/text.hpp"

namespace qpn::bench::v100 {

namespace {

constexpr std::int64_t contexts[] = {round_context, 8192, 32768, 65536, 131072};
constexpr char const* part_names[round_parts] = {"products", "head", "attention",
                                                 "GDN",      "rows", "exchange"};
constexpr char const* part_keys[round_parts] = {"products_ms", "head_ms", "attention_ms",
                                                "gdn_ms",      "rows_ms", "exchange_ms"};
constexpr char const* phase_names[round_phases] = {"settled rows", "drafts", "verify", "keep"};

std::string ms_of(double us) {
  return fixed(us * 1e-3, 2);
}

std::vector<round_time> rounds_at(std::vector<round_time> const& rounds, std::int64_t context) {
  std::vector<round_time> found;
  for (round_time const& one : rounds) {
    if (one.shape.context == context) found.push_back(one);
  }
  return found;
}

std::string parts_section(std::vector<round_time> const& rounds) {
  std::vector<std::string> names = {"k", "launches", "of them products"};
  for (char const* const name : part_names) names.emplace_back(name);
  for (char const* const name : {"gaps", "host", "round ms", "predecessor ms, measured", "of it"}) {
    names.emplace_back(name);
  }
  std::string text = "### A round at " + std::to_string(round_context) +
                     " live tokens, ms (modelled, not measured)\n\n" + table_head(names);
  for (round_time const& one : rounds_at(rounds, round_context)) {
    std::vector<std::string> cells = {std::to_string(one.shape.drafts),
                                      std::to_string(one.launches), std::to_string(one.products)};
    for (double const us : one.part_us) cells.push_back(ms_of(us));
    cells.push_back(ms_of(one.gaps_us));
    cells.push_back(ms_of(one.host_us));
    cells.push_back(fixed(one.ms(), 2));
    auto const before = predecessor_round_ms(one.shape.drafts);
    cells.push_back(before ? fixed(*before, 1) : "-");
    cells.push_back(before ? fixed(100 * one.ms() / *before, 0) + " %" : "-");
    text += table_line(cells);
  }
  return text;
}

std::string phases_section(std::vector<round_time> const& rounds) {
  std::vector<std::string> names = {"k"};
  for (char const* const name : phase_names) names.emplace_back(name);
  names.insert(names.end(), {"a draft", "a row of verify more than at k = 0"});
  std::string text = "### By phase, ms with gaps\n\n" + table_head(names);
  double plain_us = 0;
  for (round_time const& one : rounds_at(rounds, round_context)) {
    std::vector<std::string> cells = {std::to_string(one.shape.drafts)};
    for (double const us : one.phase_us) cells.push_back(ms_of(us));
    auto const of_phase = [&](round_phase phase) {
      return one.phase_us[static_cast<std::size_t>(phase)];
    };
    double const verify_us = of_phase(round_phase::verify);
    int const drafts = one.shape.drafts;
    if (drafts == 0) plain_us = verify_us;
    cells.push_back(drafts == 0 ? "-" : fixed(of_phase(round_phase::drafts) * 1e-3 / drafts, 3));
    cells.push_back(drafts == 0 ? "-" : fixed((verify_us - plain_us) * 1e-3 / drafts, 3));
    text += table_line(cells);
  }
  return text;
}

std::string contexts_section(std::vector<round_time> const& rounds) {
  std::vector<std::string> names = {"live tokens"};
  for (int const drafts : round_depths) names.push_back("k = " + std::to_string(drafts));
  std::string text = "### By live context, ms a round\n\n" + table_head(names);
  for (std::int64_t const context : contexts) {
    std::vector<std::string> cells = {std::to_string(context)};
    for (round_time const& one : rounds_at(rounds, context)) cells.push_back(fixed(one.ms(), 2));
    text += table_line(cells);
  }
  return text;
}

std::string launches_section(round_timer& timer) {
  std::string text =
      "### Launches of a round with k = " + std::to_string(round_limit_drafts) + "\n\n" +
      table_head({"phase", "kernel", "part", "times", "m", "us each, with its gap", "ms"});
  round_shape const shape = full_round(round_limit_drafts, round_context);
  for (round_launch const& one : round_launches(qwen38_27b_at_tp4(), shape)) {
    double const us = timer.launch_us(one);
    std::string const kernel = one.is_product() ? std::string(one.weight.what) + ": " +
                                                      std::string(format_name(one.weight)) + " " +
                                                      shape_name(one.weight)
                                                : one.kernel;
    text += table_line({phase_names[static_cast<std::size_t>(one.phase)], kernel,
                        part_names[static_cast<std::size_t>(one.part)], std::to_string(one.count),
                        std::to_string(one.m), fixed(us, 2),
                        ms_of(us * static_cast<double>(one.count))});
  }
  return text;
}

std::string predecessor_section() {
  std::string text =
      "### The predecessor's round at k = 7, measured\n\n" + table_head({"part", "ms"});
  double sum = 0;
  for (predecessor_part const& one : predecessor_parts()) {
    text += table_line({one.what, fixed(one.ms, 2)});
    sum += one.ms;
  }
  return text + table_line({"all of them", fixed(sum, 2)}) +
         table_line({"the round", fixed(*predecessor_round_ms(round_limit_drafts), 2)});
}

std::string sensitivity_section(std::vector<round_time> const& rounds) {
  std::string text = "### What a microsecond more costs, ms a round\n\n" +
                     table_head({"k", "a launch that is no product", "a product", "a hop"});
  for (round_time const& one : rounds_at(rounds, round_context)) {
    auto const ms = [](std::int64_t count) { return ms_of(static_cast<double>(count)); };
    text += table_line({std::to_string(one.shape.drafts), ms(one.launches - one.products),
                        ms(one.products), ms(one.hops)});
  }
  return text;
}

std::string limit_section(std::vector<round_time> const& rounds) {
  std::vector<std::string> const misses = missed_round_limits(rounds);
  std::string text = "### Limit of a round\n\n";
  if (!misses.empty()) return text + "Missed: " + misses.front() + "\n";
  for (round_time const& one : rounds_at(rounds, round_context)) {
    if (one.shape.drafts != round_limit_drafts) continue;
    text += "Kept: a round with " + std::to_string(round_limit_drafts) + " drafts takes " +
            fixed(one.ms(), 2) + " ms, " + fixed(round_limit_ms, 0) + " are allowed.\n";
  }
  return text;
}

std::string constants_section() {
  std::string text = "### Constants of a round\n\n" + table_head({"constant", "value", "source"});
  for (constant const& one : round_constants()) text += constant_line(one);
  return text + table_line({"a hop: from a store until another rank sees it",
                            fixed(hop_us(), 2) + " us", "solved from the all-reduce above"});
}

}  // namespace

std::vector<round_time> make_rounds(round_timer& timer) {
  rank_model const model = qwen38_27b_at_tp4();
  std::vector<round_time> rounds;
  for (std::int64_t const context : contexts) {
    for (int const drafts : round_depths) {
      rounds.push_back(timer.time(model, full_round(drafts, context)));
    }
  }
  return rounds;
}

std::string round_json_of(std::vector<round_time> const& rounds) {
  using json = nlohmann::ordered_json;
  auto const rounded = [](double ms) { return std::round(ms * 1e4) / 1e4; };
  json rows = json::array();
  for (round_time const& one : rounds) {
    auto const before = predecessor_round_ms(one.shape.drafts);
    bool const is_short = one.shape.context == round_context;
    json object;
    object["drafts"] = one.shape.drafts;
    object["context"] = one.shape.context;
    object["launches"] = one.launches;
    object["round_ms"] = rounded(one.ms());
    object["predecessor_ms"] = before && is_short ? json(rounded(*before)) : json();
    for (std::size_t i = 0; i < one.part_us.size(); ++i) {
      object[part_keys[i]] = rounded(one.part_us[i] * 1e-3);
    }
    object["gaps_ms"] = rounded(one.gaps_us * 1e-3);
    object["host_ms"] = rounded(one.host_us * 1e-3);
    rows.push_back(object);
  }
  return rows.dump(2) + "\n";
}

std::string round_markdown_of(std::vector<round_time> const& rounds, round_timer& timer) {
  return parts_section(rounds) + "\n" + limit_section(rounds) + "\n" + phases_section(rounds) +
         "\n" + contexts_section(rounds) + "\n" + predecessor_section() + "\n" +
         sensitivity_section(rounds) + "\n" + launches_section(timer) + "\n" + constants_section();
}

}  // namespace qpn::bench::v100
