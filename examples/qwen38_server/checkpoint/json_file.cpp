// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json_file.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "checkpoint/mapped_file.hpp"
#include "checkpoint/message_text.hpp"
#include "support/error.hpp"

namespace qwen38::checkpoint {
namespace {

using nlohmann::json;

// config.json nests about six levels deep.
constexpr int max_depth = 32;

}  // namespace

json parse_json_object(std::string_view text, std::string const& label) {
  auto const fail = [&](std::string const& what) {
    throw error(error_kind::corrupt_data, label + ": " + what);
  };
  std::vector<std::set<std::string>> keys;  // of the objects that are open now
  auto const check = [&](int depth, json::parse_event_t event, json& parsed) {
    using parse_event = json::parse_event_t;
    // The parser is iterative, but using and destroying a deep document need not be.
    if (depth > max_depth)
      fail("the JSON nests deeper than " + std::to_string(max_depth) + " levels");
    if (event == parse_event::object_start) keys.emplace_back();
    if (event == parse_event::object_end) keys.pop_back();
    if (event == parse_event::key && !keys.back().insert(parsed.get<std::string>()).second) {
      fail("the key " + in_quotes(parsed.get<std::string>()) + " stands twice in one object");
    }
    return true;
  };
  // To the JSON library a zero byte is the end of its input, whatever comes after.
  if (std::size_t const zero = text.find('\0'); zero != std::string_view::npos) {
    fail("not valid JSON at byte " + std::to_string(zero + 1));
  }
  json document;
  try {
    document = json::parse(text, check);
  } catch (json::parse_error const& failure) {
    fail("not valid JSON at byte " + std::to_string(failure.byte));
  } catch (json::exception const&) {  // a number outside the range of double
    fail("not valid JSON");
  }
  if (!document.is_object())
    fail(std::string("the JSON is ") + document.type_name() + ", not an object");
  return document;
}

json read_json_object(std::filesystem::path const& path) {
  mapped_file const file(path);
  std::string_view const text(reinterpret_cast<char const*>(file.bytes().data()),
                              file.bytes().size());
  return parse_json_object(text, path.string());
}

void write_json(std::filesystem::path const& path, json const& document) {
  std::ofstream file(path, std::ios::binary);
  file << document.dump(1, ' ', false, json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) throw error(error_kind::io, path.string() + ": cannot write the file");
}

}  // namespace qwen38::checkpoint
