// SPDX-License-Identifier: Apache-2.0
#include "gemm_tune/report.hpp"

#include <algorithm>
#include <cstddef>

#include "gemm_tune/candidates.hpp"
#include "support/text.hpp"

namespace qpn::bench::tune {

namespace {

/// us of the best choice by those of the rules', for each turn.
std::vector<double> ratios(tuned_call const& call) {
  std::vector<double> all;
  for (std::size_t i = 0; i < call.rule().turns.size(); ++i) {
    all.push_back(call.best().turns[i] / call.rule().turns[i]);
  }
  return all;
}

}  // namespace

timed_choice const& tuned_call::best() const {
  timed_choice const* best = &rule();
  for (timed_choice const& other : choices) {
    bool const to_the_end = other.turns.size() == rule().turns.size();
    if (to_the_end && other.us() < best->us()) best = &other;
  }
  return *best;
}

double tuned_call::gain() const {
  return 1.0 - median(ratios(*this));
}

double tuned_call::noise() const {
  return spread(ratios(*this));
}

bool tuned_call::is_worth_a_row() const {
  return gain() > std::max(0.02, noise());
}

gemm_tuning_row tuned_call::row() const {
  return {shape.format, shape.n, shape.k, first_m, m, best().choice};
}

std::string json_of(report const& measured) {
  using json = nlohmann::ordered_json;
  std::vector<json> rows;
  for (tuned_call const& call : measured.calls) {
    json object;
    object["shape"] = call.shape.name;
    object["format"] = to_string(call.shape.format);
    object["n"] = call.shape.n;
    object["k"] = call.shape.k;
    object["first_m"] = call.first_m;
    object["m"] = call.m;
    object["rule"] = text_of(call.rule().choice);
    object["rule_us"] = json_us(call.rule().us());
    object["best"] = text_of(call.best().choice);
    object["best_us"] = json_us(call.best().us());
    object["gain"] = json_us(call.gain());
    object["noise"] = json_us(call.noise());
    object["row"] = call.is_worth_a_row();
    json choices = json::array();
    for (timed_choice const& timed : call.choices) {
      choices.push_back({{"choice", text_of(timed.choice)},
                         {"us", json_us(timed.us())},
                         {"turns", timed.turns.size()}});
    }
    object["choices"] = choices;
    add_context(measured.context, object);
    rows.push_back(object);
  }
  return array_text(rows);
}

std::string markdown_of(report const& measured) {
  std::string text = bench::markdown_of(measured.context) +
                     "\n| shape | format | n x k | m | rules | us | best | us | gain % | noise % | "
                     "choices | row |\n"
                     "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (tuned_call const& call : measured.calls) {
    std::string const of_m = call.first_m == call.m
                                 ? std::to_string(call.m)
                                 : std::to_string(call.first_m) + ".." + std::to_string(call.m);
    text += "| " + std::string(call.shape.name) + " | " + to_string(call.shape.format) + " | " +
            std::to_string(call.shape.n) + " x " + std::to_string(call.shape.k) + " | " + of_m +
            " | " + text_of(call.rule().choice) + " | " + fixed(call.rule().us(), 2) + " | " +
            text_of(call.best().choice) + " | " + fixed(call.best().us(), 2) + " | " +
            fixed(100.0 * call.gain(), 1) + " | " + fixed(100.0 * call.noise(), 1) + " | " +
            std::to_string(call.choices.size()) + " | " + (call.is_worth_a_row() ? "yes" : "-") +
            " |\n";
  }
  return text;
}

}  // namespace qpn::bench::tune
