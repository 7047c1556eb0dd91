// SPDX-License-Identifier: Apache-2.0
// What a row of a constrained answer costs: the mask of the ids that may come next, made for a new
// state of the grammar's automaton (cold) and looked up for a known one (known), and both over a
// whole answer (answer).
//   qwen38_token_masks_bench [--tokenizer FILE] [--benchmark_...]
// Without a tokenizer.json: a made-up vocabulary of as many ids as Qwen3.8 has, 248,077, whose
// lengths and scripts are mixed like those of a real one.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/made_up_vocabulary.hpp"
#include "text/answer_grammar.hpp"
#include "text/token_constraint.hpp"
#include "text/tokenizer.hpp"
#include "text/vocabulary.hpp"

namespace qwen38::bench {
namespace {

using json = nlohmann::ordered_json;

struct state_of {
  char const* name;
  text::byte_grammar grammar;
  char const* text;    ///< what has been written
  char const* answer;  ///< how it goes on to the end
};

/// The states that differ in how much of the vocabulary may follow.
std::vector<state_of> states() {
  json const schema = json::parse(R"({"type": "object", "required": ["id", "kind", "note", "items"],
    "additionalProperties": false, "properties": {
      "id": {"type": "integer"}, "kind": {"enum": ["invoice", "reminder", "offer"]},
      "note": {"type": "string"}, "code": {"type": "string", "maxLength": 200},
      "items": {"type": "array", "items": {"type": "object", "properties": {
        "name": {"type": "string"}, "count": {"type": "integer"}}}}}})");
  char const* const whole =
      R"({"id": 4711, "kind": "reminder", "note": "Gr\u00fc\u00dfe aus Z\u00fcrich: the invoice is paid.", )"
      R"("code": "A-17/x", "items": [{"name": "blue pen", "count": 12}, {"name": "red pen", "count": 7}]})";
  std::vector<state_of> out;
  out.push_back({"name_of_a_member", text::make_json_grammar(&schema, false), "{\"", whole + 2});
  out.push_back({"string", text::make_json_grammar(&schema, false),
                 R"({"id": 4711, "kind": "reminder", "note": "Paid)", nullptr});
  out.push_back({"string_with_a_longest_length", text::make_json_grammar(&schema, false),
                 R"({"id": 4711, "kind": "offer", "note": "", "code": "A)", nullptr});
  out.push_back({"any_object", text::make_json_grammar(nullptr, false), "{", nullptr});
  out.push_back({"reasoning", text::make_json_grammar(&schema, true), "So", nullptr});
  out.push_back(
      {"text_before_a_call", text::make_tool_grammar({{"look_up", nullptr}}, {}), "So", nullptr});
  return out;
}

void write(text::token_constraint& answer, text::tokenizer const& words, std::string_view text) {
  for (std::int32_t const id : words.encode(text, text::special_policy::as_text))
    answer.advance(id);
}

void bm_cold(benchmark::State& state, text::token_constraint const& before) {
  for (auto _ : state) {
    state.PauseTiming();
    auto one = std::make_unique<text::token_constraint>(before);
    state.ResumeTiming();
    benchmark::DoNotOptimize(one->mask().data());
    state.PauseTiming();
    one.reset();
    state.ResumeTiming();
  }
}

void bm_known(benchmark::State& state, text::token_constraint before) {
  for (auto _ : state) benchmark::DoNotOptimize(before.mask().data());
}

/// All rows of an answer, from the first on: time per row.
void bm_answer(benchmark::State& state, text::token_grammar const& rules,
               std::vector<std::int32_t> const& ids) {
  for (auto _ : state) {
    text::token_constraint one(rules);
    for (std::int32_t const id : ids) {
      benchmark::DoNotOptimize(one.mask().data());
      one.advance(id);
    }
  }
  state.counters["rows"] = static_cast<double>(ids.size());
  state.counters["s_per_row"] = benchmark::Counter(
      static_cast<double>(ids.size()),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void register_all(text::tokenizer const& source) {
  auto const words = std::make_shared<text::vocabulary const>(source);
  for (state_of& each : states()) {
    text::token_grammar const rules{
        words, std::make_shared<text::byte_grammar const>(std::move(each.grammar))};
    text::token_constraint before(rules);
    write(before, source, each.text);
    auto const named = [&](char const* kind) { return std::string(kind) + "/" + each.name; };
    benchmark::RegisterBenchmark(named("cold").c_str(), bm_cold, before)
        ->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(named("known").c_str(), bm_known, before)
        ->Unit(benchmark::kMicrosecond);
    if (each.answer == nullptr) continue;
    auto const ids =
        source.encode(std::string(each.text) + each.answer, text::special_policy::as_text);
    benchmark::RegisterBenchmark("answer", bm_answer, rules, ids)->Unit(benchmark::kMicrosecond);
  }
}

/// Takes --tokenizer FILE out of the arguments.
std::string tokenizer_argument(int& count, char** arguments) {
  std::string out;
  int kept = 1;
  for (int i = 1; i < count; ++i) {
    if (std::string_view(arguments[i]) == "--tokenizer" && i + 1 < count) {
      out = arguments[++i];
    } else {
      arguments[kept++] = arguments[i];
    }
  }
  count = kept;
  return out;
}

}  // namespace
}  // namespace qwen38::bench

int main(int count, char** arguments) {
  try {
    std::string const file = qwen38::bench::tokenizer_argument(count, arguments);
    benchmark::Initialize(&count, arguments);
    if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 2;
    auto const source = file.empty()
                            ? qwen38::text::tokenizer::from_json(
                                  qwen38::bench::made_up_vocabulary(248077), "made-up vocabulary")
                            : qwen38::text::tokenizer::from_file(file);
    std::fprintf(stderr, "%d ids\n", source.vocab_size());
    qwen38::bench::register_all(source);
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
  } catch (std::exception const& problem) {
    std::fprintf(stderr, "qwen38_token_masks_bench: %s\n", problem.what());
    return 1;
  }
}
