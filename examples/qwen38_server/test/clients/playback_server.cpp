// SPDX-License-Identifier: Apache-2.0
// A server whose answers are played back instead of computed, for clients that need an answer no
// small model gives:
//   playback_server MODEL_DIRECTORY SCRIPT        prints "listening on http://127.0.0.1:PORT", ends
//   on SIGTERM
// SCRIPT: JSON Lines, {"contains": text, "answer": text}. A request gets the answer of the first
// line whose text stands in its prompt, as token ids of the model's tokenizer; from there on
// everything is the real server: text, reasoning, stop strings, replies. Thinking is part of the
// answer where the prompt ends in an open <think>.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/handler.hpp"
#include "engine/generation.hpp"
#include "http/server.hpp"
#include "support/error.hpp"
#include "test/support/scripted_service.hpp"
#include "text/tokenizer.hpp"

namespace qwen38::test {
namespace {

struct played_line {
  std::string contains;
  std::string answer;
};

std::vector<played_line> read_script(char const* path) {
  std::ifstream file(path);
  if (!file) throw error(error_kind::not_found, std::string(path) + " cannot be read.");
  std::vector<played_line> out;
  for (std::string line; std::getline(file, line);) {
    auto const fields = nlohmann::json::parse(line);
    out.push_back({fields.at("contains"), fields.at("answer")});
  }
  return out;
}

/// What the engine would report of a request whose tokens are these and then the end.
script play(engine::request const& wanted, std::string const& answer,
            text::tokenizer const& tokenizer) {
  script out;
  engine::generation output(wanted, tokenizer, tokenizer.vocab_size());
  output.begin();
  auto ids = tokenizer.encode(answer);
  ids.insert(ids.end(), wanted.stop_ids.begin(), wanted.stop_ids.end());
  for (std::int32_t const id : ids) {
    if (output.ended()) break;
    output.add(id);
    out.steps.push_back(output.take_delta());
  }
  output.end(engine::finish_reason::length);
  out.outcome = output.outcome();
  return out;
}

void serve(char const* model, char const* script_path) {
  auto const tokenizer = text::tokenizer::from_checkpoint(model);
  auto const lines = read_script(script_path);
  scripted_service engine(
      [&](engine::request const& wanted) {
        auto const prompt = tokenizer.decode(wanted.prompt_ids, /*skip_special=*/false);
        for (auto const& line : lines) {
          if (prompt.find(line.contains) != std::string::npos)
            return play(wanted, line.answer, tokenizer);
        }
        throw error(error_kind::invalid_argument, "The script has no answer to this prompt.");
      },
      {.lanes = 4, .queue = 64, .context = 262144, .drafts = false});
  api::settings served;
  served.model_id = "playback";
  for (char const* const stop : {"<|im_end|>", "<|endoftext|>"}) {
    if (auto const id = tokenizer.token_to_id(stop)) served.eos_ids.push_back(*id);
  }
  api::handler const requests(engine, tokenizer, served);
  http::options wanted;
  wanted.port = 0;
  wanted.stop_on_signals = true;
  http::server server(requests, wanted);
  std::cout << "listening on http://127.0.0.1:" << server.port() << std::endl;
  server.run();
}

}  // namespace
}  // namespace qwen38::test

int main(int count, char** arguments) {
  if (count != 3) {
    std::fputs("usage: playback_server MODEL_DIRECTORY SCRIPT\n", stderr);
    return 2;
  }
  try {
    qwen38::test::serve(arguments[1], arguments[2]);
    return 0;
  } catch (std::exception const& problem) {
    std::fprintf(stderr, "playback_server: %s\n", problem.what());
    return 1;
  }
}
