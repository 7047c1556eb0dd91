// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tool_call_parser.hpp"

namespace qwen38::text::testing {

inline std::shared_ptr<tool_signatures const> signatures_of(
    std::vector<std::pair<std::string, std::string>> const& tools) {
  tool_signatures out;
  for (auto const& [name, schema] : tools) {
    out.emplace(name, read_tool_signature(nlohmann::ordered_json::parse(schema)));
  }
  return std::make_shared<tool_signatures const>(std::move(out));
}

/// Weather, a shell, a writer of files, and one whose parameters have every kind of type.
inline std::shared_ptr<tool_signatures const> const& known_tools() {
  static auto const made = signatures_of(
      {{"weather",
        R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}}})"},
       {"bash", R"({"type":"object","properties":{"command":{"type":"string"}}})"},
       {"write_file",
        R"({"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}}})"},
       {"typed",
        R"({"type":"object","properties":{"i":{"type":"integer"},"n":{"type":"number"},"b":{"type":"boolean"},
           "o":{"type":"object"},"l":{"type":"array"},"z":{"type":"null"},"s":{"type":"string"},
           "e":{"enum":["a","b"]},"opt":{"anyOf":[{"type":"string"},{"type":"null"}]},"any":{}}})"}});
  return made;
}

/// Neighbours of one kind and call joined.
inline void join(std::vector<tool_event> const& more, std::vector<tool_event>& all) {
  for (tool_event const& one : more) {
    bool const same = !all.empty() && all.back().what == one.what &&
                      all.back().index == one.index && one.what != tool_event::kind::call;
    if (same) {
      all.back().text += one.text;
    } else {
      all.push_back(one);
    }
  }
}

template <class Pieces>
std::vector<tool_event> parse_pieces(std::shared_ptr<tool_signatures const> const& tools,
                                     Pieces const& pieces, bool complete = true) {
  tool_call_parser parser(tools);
  std::vector<tool_event> all;
  std::vector<tool_event> events;
  for (std::string_view const piece : pieces) {
    events.clear();
    parser.push(piece, events);
    join(events, all);
  }
  events.clear();
  parser.finish(complete, events);
  join(events, all);
  return all;
}

/// One line per event: `text`, `call 0 name`, `args 0 json`.
inline std::string shown(std::vector<tool_event> const& events) {
  std::string out;
  for (tool_event const& one : events) {
    switch (one.what) {
      case tool_event::kind::content: out += "text "; break;
      case tool_event::kind::call: out += "call " + std::to_string(one.index) + ' '; break;
      case tool_event::kind::arguments: out += "args " + std::to_string(one.index) + ' '; break;
    }
    out += one.text + '|';
  }
  return out;
}

inline std::string parsed(std::string const& text, bool complete = true) {
  return shown(parse_pieces(known_tools(), std::vector<std::string_view>{text}, complete));
}

}  // namespace qwen38::text::testing
